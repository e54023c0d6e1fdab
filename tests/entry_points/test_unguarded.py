"""Nothing keyed runs unguarded in silence: each response has a header, each bare run a warning and
a signal.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth import authenticate
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.test import AsyncClient, Client, override_settings
from django.urls import include, path
from django.views import View
from django.views.decorators.cache import cache_control
from rest_framework.decorators import api_view
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import Policy, idempotency_exempt, idempotent
from django_idempotency.contrib.graphql.kind import RESOLVERS
from django_idempotency.contrib.graphql.views import READS
from django_idempotency.contrib.ninja.kind import INSIDE
from django_idempotency.errors import ConfigurationError
from django_idempotency.http.exchange import HEADER
from django_idempotency.http.unguarded import REASONS
from django_idempotency.rest_framework import IdempotentViewMixin
from django_idempotency.signals import unguarded

from .conftest import CHARGE, KEY, Connect, Sender, effects
from .outcome_views import write

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
]


def plain(request: HttpRequest) -> HttpResponse:
    write()
    if "fail" in request.GET:
        raise LookupError
    return JsonResponse({}, status=int(request.GET.get("status", 201)))


async def awaited(request: HttpRequest) -> HttpResponse:
    return JsonResponse({}, status=201)


def bearer(request: HttpRequest) -> HttpResponse:
    """A view that authenticates inside: ninja, headless allauth, JWT in GraphQL."""
    if authenticate(username="ada", password=request.headers.get("X-Secret", "")) is None:
        return HttpResponse(status=401)
    return plain(request)


class Bare(APIView):
    permission_classes = ()

    def post(self, request: Request) -> Response:
        write()
        return Response({}, status=201)

    def delete(self, request: Request) -> Response:
        write()
        return Response({}, status=204)


class Mixed(IdempotentViewMixin, Bare):
    permission_classes = (IsAuthenticated,)  # type: ignore[assignment]
    idempotency = Policy(methods=("POST",))

    @idempotency_exempt
    def patch(self, request: Request) -> Response:
        return Response({}, status=200)


class Awaiting(IdempotentViewMixin, Bare):
    """Awaits its handlers itself, which a guard cannot know."""

    view_is_async = False

    async def post(self, request: Request) -> Response:  # type: ignore[override]
        return Response({}, status=201)

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        async def awaited() -> Any:
            return await response

        if inspect.iscoroutine(response):
            response = async_to_sync(awaited)()
        return super().finalize_response(request, response, *args, **kwargs)


@idempotency_exempt
def exempt(request: HttpRequest) -> HttpResponse:
    return plain(request)


@idempotency_exempt
async def exempt_awaited(request: HttpRequest) -> HttpResponse:
    return await awaited(request)


@api_view(["POST", "DELETE"])
@idempotent(methods=("POST",))
def below(request: Request) -> Response:
    return Response({}, status=201)


COPIED = {HEADER: "created", "Idempotent-Replayed": "true", "Idempotency-Degraded": "true"}


def gateway(request: HttpRequest) -> HttpResponse:
    """Copies the headers of another service."""
    return HttpResponse(status=201, headers=COPIED)


class HalfGuarded(View):
    def post(self, request: HttpRequest) -> HttpResponse:
        return gateway(request)

    @idempotent()
    def put(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse(status=201)


urlpatterns = [
    path("gateway/", gateway),
    path("half-guarded/", HalfGuarded.as_view()),
    path("plain/", plain),
    path("awaited/", awaited),
    path("bearer/", bearer),
    path("bare/", Bare.as_view()),
    path("mixed/", Mixed.as_view()),
    path("below/", below),
    path("own/", idempotent(methods=("POST",))(plain)),
    path(
        "own-awaited/",
        idempotent(guarantee="lease", methods=("POST",), anonymous="shared")(awaited),
    ),
    path("behind-login/", login_required(idempotent()(plain))),
    path("awaiting/", Awaiting.as_view()),
    path("decorated/", cache_control(private=True)(Bare.as_view())),
    path("exempt/", exempt),
    path(
        "included/", include(([path("plain/", plain), path("bare/", Bare.as_view())], "included"))
    ),
    path("exempt-awaited/", exempt_awaited),
    path("exempt-bare/", idempotency_exempt(Bare.as_view())),
]


class Received(list[dict[str, Any]]):
    """What the signal was sent with."""

    @property
    def reasons(self) -> list[str]:
        return [sent["reason"] for sent in self]


@pytest.fixture
def received(caplog: pytest.LogCaptureFixture) -> Iterator[Received]:
    received = Received()

    def receive(**sent: Any) -> None:
        received.append(sent)

    unguarded.connect(receive)
    caplog.set_level(logging.DEBUG, "django_idempotency")
    yield received
    unguarded.disconnect(receive)
    records = [
        record
        for record in caplog.get_records("call")
        if "unguarded" in str(record.__dict__.get("idempotency"))
    ]
    levels = {reason.code: reason.level for reason in (*REASONS, INSIDE, RESOLVERS, READS)}
    # One of each, always.
    assert [record.__dict__["idempotency"]["reason"] for record in records] == received.reasons
    assert [record.levelno for record in records] == [levels[reason] for reason in received.reasons]
    assert all(KEY not in str(vars(record)) for record in records)
    assert all(
        sent["operation"] is None and isinstance(sent["request"], HttpRequest) for sent in received
    )


# ---------------------------------------------------------------------------- what a guard has done


@pytest.mark.parametrize("url", ["/plain/", "/bare/", "/mixed/", "/below/", "/own/"])
def test_each_response_shows_what_became_of_the_request(
    user: User, connect: Connect, received: Received, url: str
) -> None:
    """The header says: ran, replayed, refused for another body, or refused for a malformed key.

    Without a key: none.
    """
    send = Sender(url, connect("/own/", user).client, {})
    assert [send()[HEADER], send()[HEADER], send({"other": 1})[HEADER]] == [
        "created",
        "replayed",
        "mismatch",
    ]
    assert send(key="a,b")[HEADER] == "refused"
    assert HEADER not in send(key=None)
    assert received == []


def test_a_response_that_is_not_remembered_shows_it(user: User, connect: Connect) -> None:
    """A refusal frees the key for another body, a failure binds it.

    A view's exception counts as a failure.
    """
    send = connect("/plain/", user)
    assert send(url="/plain/?status=409")[HEADER] == "released"
    assert send(url="/plain/?status=500")[HEADER] == "failed"
    assert send(url="/plain/?fail", key="another")[HEADER] == "failed"
    assert send(url="/own/?fail", key="a third")[HEADER] == "failed"


def test_a_guard_that_is_not_reached(user: User, connect: Connect, received: Received) -> None:
    """DRF, an access decorator or the URLconf refuses first: nothing ran under the key."""
    send = connect("/plain/", user)
    send.client.logout()
    assert [send(url=url)[HEADER] for url in ("/mixed/", "/behind-login/", "/nowhere/")] == [
        "refused"
    ] * 3
    assert [
        send.client.put(url, headers={"Idempotency-Key": KEY})[HEADER]
        for url in ("/mixed/", "/below/")
    ] == ["refused"] * 2
    assert received == []


# -------------------------------------------------------------------------------- what has no guard


@pytest.mark.parametrize("url", ["/plain/", "/bare/", "/bearer/"])
def test_a_key_without_a_principal(user: User, received: Received, url: str) -> None:
    """The middleware finds no user, even where the view does: the request runs, and is reported as
    unguarded.
    """
    user.username = "ada"
    user.set_password("secret")
    user.save()
    answers = [
        Client().post(url, headers={"Idempotency-Key": KEY, "X-Secret": "secret"}) for _ in range(2)
    ]
    assert [(answer.status_code, answer[HEADER]) for answer in answers] == [(201, "unguarded")] * 2
    assert received.reasons == ["nobody"] * 2
    assert effects() == 2


@override_settings(IDEMPOTENCY={"REQUIRED": True})
@pytest.mark.parametrize("url", ["/plain/", "/bare/", "/bearer/"])
def test_a_key_without_a_principal_where_keys_are_required(
    received: Received, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The request is refused: what must be guarded does not run without a guard.

    The log says what to type.
    """
    answer = Client().post(url, headers={"Idempotency-Key": KEY})
    assert (answer.status_code, answer.json()["code"], answer[HEADER]) == (
        400,
        "scope-required",
        "refused",
    )
    assert (effects(), received) == (0, [])
    (record,) = [each for each in caplog.records if each.name == "django_idempotency"]
    assert record.getMessage().startswith(f"POST {url} was refused with scope-required")


@override_settings(IDEMPOTENCY={"REQUIRED": "warn"})
@pytest.mark.parametrize("url", ["/plain/", "/bare/", "/mixed/", "/below/", "/own/"])
def test_a_missing_key_may_be_reported_and_not_refused(
    user: User, connect: Connect, received: Received, url: str
) -> None:
    """Between optional and required, a request without a key runs, and its client can see what is
    coming.
    """
    send = Sender(url, connect("/own/", user).client, {})
    without, with_key = send(key=None), send()
    assert (without.status_code, without[HEADER]) == (201, "unguarded")
    assert (with_key.status_code, with_key[HEADER]) == (201, "created")
    assert send(key="a,b").status_code == 400
    assert received.reasons == ["key-missing"]


@override_settings(IDEMPOTENCY={"REQUIRED": "warn"})
@pytest.mark.parametrize("url", ["/decorated/", "/awaiting/"])
def test_a_missing_key_where_no_guard_can_be(received: Received, url: str) -> None:
    """A view that a guard would refuse runs without a key, as it did before the settings warned."""
    answer = Client().post(url)
    assert (answer.status_code, answer[HEADER], received.reasons) == (
        201,
        "unguarded",
        ["key-missing"],
    )
    with pytest.raises((ConfigurationError, ImproperlyConfigured)):
        Client().post(url, headers={"Idempotency-Key": KEY})


@override_settings(IDEMPOTENCY={"REQUIRED": "warn"})
def test_a_missing_key_of_an_async_view(received: Received) -> None:
    """The same in an event loop."""
    answer = async_to_sync(AsyncClient().post)("/own-awaited/")
    assert (answer.status_code, answer[HEADER], received.reasons) == (
        201,
        "unguarded",
        ["key-missing"],
    )


@pytest.mark.parametrize("required", [False, True])
@pytest.mark.parametrize(
    ("method", "url", "reason"),
    [
        ("POST", "/exempt/", "exempt"),
        ("POST", "/exempt-bare/", "exempt"),
        ("PATCH", "/mixed/", "exempt"),
        ("DELETE", "/mixed/", "method"),
        ("DELETE", "/own/", "method"),
        ("DELETE", "/below/", "method"),
    ],
)
def test_what_the_project_leaves_out(
    user: User,
    connect: Connect,
    received: Received,
    settings: Any,
    *,
    required: bool,
    method: str,
    url: str,
    reason: str,
) -> None:
    """An exempt view, and a method that no key works on, are reported and not refused."""
    settings.IDEMPOTENCY = {"REQUIRED": required}
    client = connect("/own/", user).client
    answer = client.generic(method, url, headers={"Idempotency-Key": KEY})
    assert (answer.status_code < 300, answer[HEADER]) == (True, "unguarded")
    assert received.reasons == [reason]


@override_settings(IDEMPOTENCY={"METHODS": ("PUT",)})
def test_a_method_that_the_settings_leave_out(
    user: User, connect: Connect, received: Received
) -> None:
    """The same for views under the middleware, plain or adapted."""
    send = connect("/plain/", user)
    assert [send()[HEADER], send(url="/bare/")[HEADER]] == ["unguarded"] * 2
    assert received.reasons == ["method"] * 2


def is_probe(request: HttpRequest) -> bool:
    return User.objects.exists() and "probe" in request.GET


@pytest.mark.parametrize("required", [False, True])
@pytest.mark.parametrize(
    "url", ["/included/plain/", "/included/bare/", "/plain/?probe", "/bare/?probe"]
)
def test_what_the_settings_leave_out(
    user: User, connect: Connect, received: Received, settings: Any, *, required: bool, url: str
) -> None:
    """EXEMPT may name a third-party include or a function of the request: reported, and not refused
    under REQUIRED.
    """
    settings.IDEMPOTENCY = {
        "REQUIRED": required,
        "EXEMPT": ["namespace:included", f"function:{__name__}.is_probe"],
    }
    send = connect("/plain/", user)
    assert send(url=url, key=None).status_code == 201
    assert [send(url=url)[HEADER] for _ in range(2)] == ["unguarded"] * 2
    assert received.reasons == ["exempt"] * 2
    assert [send(url="/plain/")[HEADER], send(url="/bare/", key="b")[HEADER]] == ["created"] * 2


@override_settings(IDEMPOTENCY={"EXEMPT": ["path:/own/", "path:/mixed/"]})
def test_a_view_with_an_entry_point_of_its_own_keeps_it(
    user: User, connect: Connect, received: Received
) -> None:
    """EXEMPT applies to the middleware only."""
    send = connect("/plain/", user)
    assert [send(url="/own/")[HEADER], send(url="/mixed/", key="another")[HEADER]] == [
        "created"
    ] * 2
    assert received == []


def test_an_entry_that_is_wrong(user: User, connect: Connect) -> None:
    """A wrong entry raises at a keyed request; a request without a key does not read it."""
    with override_settings(IDEMPOTENCY={"EXEMPT": ["included"]}):
        send = connect("/plain/", user)
        assert [send().status_code, send(key=None).status_code] == [500, 201]


def test_a_malformed_key_is_not_judged_where_nothing_is_guarded(received: Received) -> None:
    """A malformed key is not shown in the log either."""
    assert Client().post("/exempt/", headers={"Idempotency-Key": "a,b"})[HEADER] == "unguarded"
    assert received.reasons == ["exempt"]


def test_a_view_that_copies_our_headers(
    user: User, connect: Connect, received: Received, settings: Any
) -> None:
    """Copied headers are about another key: they hide nothing, and are replaced.

    Without a key they are kept.
    """
    send = connect("/gateway/", user)
    ours = [
        send(),
        send(url="/gateway/", key="a,b"),
        Client().post("/gateway/", headers={"Idempotency-Key": KEY}),
    ]
    assert [answer.headers.get(HEADER) for answer in ours] == ["created", "refused", "unguarded"]
    assert not any(name in answer for answer in ours for name in COPIED if name != HEADER)
    assert send(key=None).headers.items() >= COPIED.items()
    settings.MIDDLEWARE = [
        each for each in settings.MIDDLEWARE if "IdempotencyMiddleware" not in each
    ]
    assert connect("/half-guarded/", user)()[HEADER] == "unguarded"
    assert received.reasons == ["nobody", "not-reached"]


def test_an_exception_is_reported_as_well(received: Received) -> None:
    """The view raised, and Django's response says that it was unguarded."""
    client = Client(raise_request_exception=False)
    assert client.post("/plain/?fail", headers={"Idempotency-Key": KEY})[HEADER] == "unguarded"
    assert received.reasons == ["nobody"]


@override_settings(IDEMPOTENCY={"GUARANTEE": "lease", "EXEMPT": [f"function:{__name__}.is_probe"]})
@pytest.mark.parametrize(
    ("method", "url", "status", "reasons"),
    [
        ("POST", "/own-awaited/", "created", []),
        ("DELETE", "/own-awaited/", "unguarded", ["method"]),
        ("POST", "/exempt-awaited/", "unguarded", ["exempt"]),
        ("POST", "/awaited/", "unguarded", ["nobody"]),
        ("POST", "/plain/", "unguarded", ["nobody"]),
        ("POST", "/awaited/?probe", "unguarded", ["exempt"]),
        ("POST", "/plain/?probe", "unguarded", ["exempt"]),
        ("POST", "/nowhere/", "refused", []),
    ],
)
def test_on_asgi(
    user: User, received: Received, *, method: str, url: str, status: str, reasons: list[str]
) -> None:
    """The same through async entry points; receivers may use the database there."""

    def counting(**_: Any) -> None:
        User.objects.count()
        counted.append(True)

    counted: list[bool] = []
    unguarded.connect(counting)

    async def send() -> Any:
        return await AsyncClient().generic(method, url, headers={"Idempotency-Key": KEY})

    answer = async_to_sync(send)()
    unguarded.disconnect(counting)
    assert answer[HEADER] == status
    assert received.reasons == reasons
    assert len(counted) == len(reasons)


def test_a_receiver_that_raises_changes_nothing(received: Received) -> None:
    """This holds as for any other event."""

    def fail(**_: Any) -> None:
        raise Http404

    unguarded.connect(fail)
    assert Client().post("/plain/", CHARGE, headers={"Idempotency-Key": KEY})[HEADER] == "unguarded"
    unguarded.disconnect(fail)
    assert received.reasons == ["nobody"]
