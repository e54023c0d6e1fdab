"""`OnTakeover`: the project says how far a crashed request came, before its retry runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from adrf.views import APIView as AsyncAPIView
from asgiref.sync import async_to_sync
from django.contrib.auth.decorators import permission_required
from django.contrib.auth.models import User
from django.db.models import F
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.template import engines
from django.template.response import TemplateResponse
from django.test import AsyncClient, Client, override_settings
from django.urls import path
from django.views import View
from ninja import NinjaAPI
from ninja.security import django_auth
from rest_framework.authentication import SessionAuthentication
from rest_framework.decorators import api_view, authentication_classes
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import OnTakeover, Policy, idempotent
from django_idempotency.contrib.dialects import PayPal
from django_idempotency.contrib.publishing.by_key import IdempotencyKeyView
from django_idempotency.core.interventions import released
from django_idempotency.core.records import Status
from django_idempotency.errors import ConfigurationError
from django_idempotency.http.takeovers import Takeover
from django_idempotency.inspection.status import next_answer
from django_idempotency.models import IdempotencyRecord
from django_idempotency.runtime.registry import stores
from testproject.payments.models import Charge, Effect
from tests.entry_points.conftest import CHARGE, KEY, effects
from tests.support.factories import grant

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
]

FOUND = {"id": "ch_1"}


class Hook:
    """Asked by `OnTakeover`: returns what the test has chosen, and lists what it was asked about."""

    def __init__(self) -> None:
        self.asked: list[Takeover] = []
        self.decide: Callable[[Takeover], Any] = lambda takeover: takeover.run()

    def __call__(self, takeover: Takeover) -> Any:
        assert Effect.objects.count() >= 0  # it may query
        self.asked.append(takeover)
        return self.decide(takeover)


hook = Hook()


async def ahook(takeover: Takeover) -> Any:
    await asyncio.sleep(0)
    hook.asked.append(takeover)
    return hook.decide(takeover)


def charge(request: Any) -> dict[str, Any]:
    Effect.objects.create(
        label=request.idempotency.derive("charge")[:9], attempt=request.idempotency.attempt
    )
    return {"attempt": request.idempotency.attempt}


def plain(request: HttpRequest) -> HttpResponse:
    return JsonResponse(charge(request), status=201)


async def aplain(request: HttpRequest) -> HttpResponse:
    handle: Any = request.idempotency  # type: ignore[attr-defined]
    await Effect.objects.acreate(label="async", attempt=handle.attempt)
    return JsonResponse({"attempt": handle.attempt}, status=201)


@idempotent(guarantee="lease", extensions=[OnTakeover(hook)])
class Plain(View):
    def post(self, request: HttpRequest) -> HttpResponse:
        return plain(request)


class Rest(APIView):
    authentication_classes = (SessionAuthentication,)
    idempotency = Policy(guarantee="lease", extensions=[OnTakeover(hook)])

    def post(self, request: Any) -> Response:
        return Response(charge(request._request), status=201)


class AsyncRest(AsyncAPIView):
    authentication_classes = (SessionAuthentication,)
    idempotency = Policy(guarantee="lease", extensions=[OnTakeover(hook)])

    async def post(self, request: Any) -> Response:
        return Response({"attempt": request._request.idempotency.attempt}, status=201)


def rest_function(request: Any) -> Response:
    return Response(charge(getattr(request, "_request", request)), status=201)


ninja = NinjaAPI(urls_namespace="takeovers", auth=django_auth)


@ninja.post("/ninja/")
@idempotent(guarantee="lease", extensions=[OnTakeover(hook)])
def operation(request: HttpRequest) -> dict[str, Any]:
    return charge(request)


@ninja.post("/async-ninja/")
@idempotent(guarantee="lease", extensions=[OnTakeover(hook)])
async def async_operation(request: HttpRequest) -> dict[str, Any]:
    return {"attempt": request.idempotency.attempt}  # type: ignore[attr-defined]


GUARD = idempotent(guarantee="lease", extensions=[OnTakeover(hook)])


def mixed(cls: Any) -> Any:
    from django_idempotency.rest_framework import IdempotentViewMixin

    made: Any = type(cls.__name__, (IdempotentViewMixin, cls), {})
    return made.as_view()


urlpatterns = [
    path("decorator/", GUARD(plain)),
    path("async-hook/", idempotent(guarantee="lease", extensions=[OnTakeover(ahook)])(plain)),
    path("class/", Plain.as_view()),
    path("async/", GUARD(aplain)),
    path("async-both/", idempotent(guarantee="lease", extensions=[OnTakeover(ahook)])(aplain)),
    path("mixin/", mixed(Rest)),
    path("adrf/", mixed(AsyncRest)),
    path(
        "above/",
        GUARD(api_view(["POST"])(authentication_classes([SessionAuthentication])(rest_function))),
    ),
    path(
        "below/",
        api_view(["POST"])(authentication_classes([SessionAuthentication])(GUARD(rest_function))),
    ),
    path("middleware/", plain),
    path("middleware/async/", aplain),
    path("middleware/rest/", Rest.as_view()),
    path(
        "middleware/permitted/",
        permission_required("payments.add_charge", raise_exception=True)(plain),
    ),
    path("large/", idempotent(guarantee="lease", extensions=[OnTakeover(hook)], max_body=3)(plain)),
    path(
        "mine/",
        idempotent(
            guarantee="lease", extensions=[OnTakeover(hook)], authorize_replay=lambda *_: False
        )(plain),
    ),
    path(
        "paypal/",
        idempotent(guarantee="lease", extensions=[OnTakeover(hook)], profile=PayPal())(plain),
    ),
    path("atomic/", idempotent(extensions=[OnTakeover(hook)])(plain)),
    path("nothing/", idempotent(guarantee="lease")(plain)),
    path("", ninja.urls),
    path("keys/<path:key>", IdempotencyKeyView.as_view()),
]
#: Every entry point, and whether a found response may be one of REST framework.
ENTRY_POINTS = {
    **dict.fromkeys(
        ["decorator", "async-hook", "class", "async", "async-both", "ninja", "async-ninja"], False
    ),
    **dict.fromkeys(["middleware", "middleware/async", "middleware/permitted"], False),
    **dict.fromkeys(["mixin", "adrf", "above", "below", "middleware/rest"], True),
}


@pytest.fixture(autouse=True)
def settings_of_the_project(settings: Any) -> None:
    hook.asked.clear()
    hook.decide = lambda takeover: takeover.run()
    settings.IDEMPOTENCY = {"GUARANTEE": "lease", "EXTENSIONS": [OnTakeover(hook)]}


Send = Callable[..., Any]


@pytest.fixture
def send(user: User) -> Send:
    grant(user, Charge, "add_charge")
    clients = Client(raise_request_exception=False), AsyncClient(raise_request_exception=False)
    for client in clients:
        client.force_login(user)

    def send(name: str = "decorator", *, asgi: bool = False) -> Any:
        post = async_to_sync(clients[1].post) if asgi else clients[0].post
        header = "PayPal-Request-Id" if name == "paypal" else "Idempotency-Key"
        return post(f"/{name}/", CHARGE, content_type="application/json", headers={header: KEY})

    return send


def crash(send: Send, name: str = "decorator") -> None:
    """Leave the record of a request as an owner does that is killed before its settle."""
    assert send(name).status_code in (200, 201)
    stranded()


def stranded() -> None:
    IdempotencyRecord.objects.update(
        status=Status.RUNNING, lease_until=F("created_at"), completed_at=None
    )


def state() -> tuple[int, int]:
    record = IdempotencyRecord.objects.get()
    return record.status, record.attempt


@pytest.mark.parametrize("asgi", [False, True], ids=["wsgi", "asgi"])
@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_found(send: Send, name: str, asgi: bool) -> None:
    """What happened is remembered and returned, marked as a replay; the view does not run.

    Retries get the same.
    """
    crash(send, name)
    before, found = effects(), Response if ENTRY_POINTS[name] else JsonResponse
    hook.decide = lambda takeover: takeover.found(
        found(FOUND, status=202, headers={"Location": "/charges/1/"})
    )
    first, retry = send(name, asgi=asgi), send(name)
    for response in (first, retry):
        assert (response.status_code, response.json(), response["Location"]) == (
            202,
            FOUND,
            "/charges/1/",
        )
        assert (response["Idempotent-Replayed"], response["Idempotency-Status"]) == (
            "true",
            "replayed",
        )
    assert first.content == retry.content
    assert first["Original-Request"] == retry["Original-Request"]
    assert (len(hook.asked), effects(), state()) == (1, before, (Status.COMPLETED, 2))


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_run(send: Send, name: str) -> None:
    """The view runs as the next attempt.

    It is asked about takeovers only, and gets the keys that the view got.
    """
    crash(send, name)
    response = send(name)
    assert (response.json(), response["Idempotency-Status"]) == ({"attempt": 2}, "created")
    assert send(name)["Idempotent-Replayed"] == "true"
    (takeover,) = hook.asked
    assert (takeover.key, takeover.attempt, takeover.request.path) == (KEY, 2, f"/{name}/")
    assert takeover.record.attempt == 2
    sent = set(Effect.objects.exclude(label="async").values_list("label", flat=True))
    assert sent <= {takeover.derive("charge")[:9]}


@pytest.mark.parametrize("asgi", [False, True], ids=["wsgi", "asgi"])
@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_hold(send: Send, name: str, asgi: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing runs until a person has released the record: 409, with the reason, however often it
    is sent.
    """
    crash(send, name)
    before = effects()
    hook.decide = lambda takeover: takeover.hold()
    for response in (send(name, asgi=asgi), send(name)):
        assert (response.status_code, response.json()["code"]) == (409, "operation-held")
        assert (response["Idempotency-Status"], response["Stripe-Should-Retry"]) == (
            "held",
            "false",
        )
        assert "Retry-After" not in response
    assert (len(hook.asked), effects(), state()) == (1, before, (Status.COMPLETED, 2))
    assert f"Held: POST /{name}/ under 8e03978e… waits for a person" in caplog.text
    record = stores["default"].get(IdempotencyRecord.objects.get().pk)
    assert record is not None
    assert "gets 409 operation-held." in str(next_answer(record))
    stores["default"].change(record.id, released, audit=lambda record: None)
    assert send(name).json() == {"attempt": 3}
    assert len(hook.asked) == 1


def test_a_held_key(send: Send, browser: Client) -> None:
    """Its client learns that it is held."""
    crash(send)
    hook.decide = lambda takeover: takeover.hold()
    send()
    assert browser.get(f"/keys/{KEY}").json() == {"key": KEY, "state": "held", "attempt": 2}


@pytest.mark.parametrize("asgi", [False, True], ids=["wsgi", "asgi"])
@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_a_hook_that_does_not_know(send: Send, name: str, asgi: bool) -> None:
    """An error goes to the client and decides nothing: the key is busy, and after the lease the
    hook is asked again.
    """
    crash(send, name)
    before = effects()
    hook.decide = lambda takeover: 1 / 0
    assert send(name, asgi=asgi).status_code == 500
    assert send(name).json()["code"] == "in-progress"
    assert (state(), effects()) == ((Status.RUNNING, 2), before)
    stranded()
    hook.decide = lambda takeover: takeover.run()
    assert send(name).json() == {"attempt": 3}
    assert len(hook.asked) == 2


@pytest.mark.parametrize(
    ("decision", "error"),
    [
        (lambda takeover: None, ConfigurationError),
        (lambda takeover: takeover.found(FOUND), TypeError),
        (lambda takeover: takeover.found(HttpResponse(status=502)), ValueError),
        # Outside REST framework.
        (
            lambda takeover: takeover.found(Response(FOUND)),
            AssertionError,
        ),
    ],
)
def test_a_decision_that_is_none(
    user: User, send: Send, decision: Any, error: type[Exception]
) -> None:
    """It is an error that says what to return, and the record stays as it is."""
    crash(send)
    hook.decide = decision
    client = Client()
    client.force_login(user)
    with pytest.raises(error):
        client.post(
            "/decorator/", CHARGE, content_type="application/json", headers={"Idempotency-Key": KEY}
        )
    assert state() == (Status.RUNNING, 2)


def test_a_refusal_of_the_hook(send: Send) -> None:
    """A raised 404 is the client's, and decides nothing either: the view has not run."""
    crash(send)

    def refuse(takeover: Takeover) -> Any:
        raise Http404

    hook.decide = refuse
    response = send()
    assert (response.status_code, response["Idempotency-Status"]) == (404, "refused")
    assert state() == (Status.RUNNING, 2)


def test_a_found_refusal_is_remembered(send: Send) -> None:
    """What the provider refused stays refused, whatever its status: the key is not free for another
    try.
    """
    crash(send)
    hook.decide = lambda takeover: takeover.found(JsonResponse({}, status=409))
    assert [send().status_code, send().status_code] == [409, 409]
    assert len(hook.asked) == 1


def test_found_without_a_body(send: Send) -> None:
    """A response that is too large to store goes to this client, and a retry learns that it was not
    stored.
    """
    crash(send, "large")
    hook.decide = lambda takeover: takeover.found(JsonResponse(FOUND))
    first, retry = send("large"), send("large")
    assert (first.json(), first["Idempotent-Replayed"]) == (FOUND, "true")
    assert retry.json()["code"] == "response-not-stored"


def test_found_as_a_template(send: Send) -> None:
    """It is rendered before it is stored."""
    crash(send)
    template = engines["django"].from_string("Charged {{ sum }}")
    hook.decide = lambda takeover: takeover.found(
        TemplateResponse(takeover.request, template, {"sum": 3})
    )
    assert [send().content, send().content] == [b"Charged 3"] * 2


def test_found_under_a_profile(send: Send) -> None:
    """It has the status and the headers that the profile gives a replay."""
    crash(send, "paypal")
    hook.decide = lambda takeover: takeover.found(JsonResponse(FOUND, status=201))
    assert [send("paypal").status_code, send("paypal").status_code] == [200, 200]


def test_how_long_it_is_remembered(send: Send) -> None:
    """A ttl that the hook sets counts for what it has found."""
    crash(send)

    def find(takeover: Takeover) -> Any:
        takeover.ttl = 5
        return takeover.found(JsonResponse(FOUND))

    hook.decide = find
    send()
    record = IdempotencyRecord.objects.get()
    assert record.completed_at is not None
    assert 4 <= (record.expires_at - record.completed_at).total_seconds() <= 6


@pytest.mark.parametrize("name", ["mine", "middleware/permitted"])
def test_who_may_see_what_was_found(send: Send, user: User, name: str) -> None:
    """Access is checked as for a replay: a client without it gets 403, and what happened is
    remembered.
    """
    crash(send, name)
    user.user_permissions.clear()
    hook.decide = lambda takeover: takeover.found(JsonResponse(FOUND))
    refused = send(name)
    assert (refused.status_code, refused.json()["code"]) == (403, "replay-refused")
    assert b"ch_1" not in refused.content
    assert state() == (Status.COMPLETED, 2)


def test_without_a_hook(send: Send) -> None:
    """A policy's own None overrides the setting: the view runs at once."""
    crash(send, "nothing")
    del hook.asked[:]
    assert send("nothing").json() == {"attempt": 2}


def test_a_contradiction(user: User) -> None:
    """A hook that would never be asked is an error before anything runs; at once if the policy says
    it all.
    """
    with pytest.raises(ValueError, match='guarantee="lease"'):
        idempotent(guarantee="atomic", extensions=[OnTakeover(hook)])
    client = Client()
    client.force_login(user)
    with (
        override_settings(IDEMPOTENCY={"GUARANTEE": "atomic"}),
        pytest.raises(ConfigurationError, match='guarantee="lease"'),
    ):
        client.post(
            "/atomic/", CHARGE, content_type="application/json", headers={"Idempotency-Key": KEY}
        )
    assert effects() == 0


def test_a_cancelled_hook(user: User, send: Send) -> None:
    """A client that disconnects while the hook asks the provider leaves the record to the next
    takeover.
    """
    crash(send, "async-both")

    def cancel(takeover: Takeover) -> Any:
        raise asyncio.CancelledError

    hook.decide = cancel
    with pytest.raises(asyncio.CancelledError):
        send("async-both", asgi=True)
    assert state() == (Status.RUNNING, 2)


def test_a_lost_record(send: Send, monkeypatch: pytest.MonkeyPatch) -> None:
    """If another owner has taken over meanwhile, the client still learns what was found, and that
    it is not stored.
    """
    crash(send)

    def overtaken(takeover: Takeover) -> Any:
        IdempotencyRecord.objects.update(owner="00000000-0000-4000-8000-000000000000")
        return takeover.found(JsonResponse(FOUND))

    hook.decide = overtaken
    response = send()
    assert (response.json(), response["Idempotency-Status"]) == (FOUND, "lost")
    assert "Idempotent-Replayed" not in response


@pytest.mark.parametrize("atomic_requests", [False, True])
def test_beside_atomic_requests(send: Send, settings: Any, atomic_requests: bool) -> None:
    """A lease is excluded from these transactions, so what is found is settled as without them."""
    from django.db import connection

    for name in ("decorator", "class", "async"):
        IdempotencyRecord.objects.all().delete()
        crash(send, name)
        connection.settings_dict["ATOMIC_REQUESTS"] = atomic_requests
        try:
            hook.decide = lambda takeover: takeover.found(JsonResponse(FOUND))
            assert [send(name).json(), send(name).json()] == [FOUND] * 2
        finally:
            connection.settings_dict["ATOMIC_REQUESTS"] = False
        assert state() == (Status.COMPLETED, 2)
