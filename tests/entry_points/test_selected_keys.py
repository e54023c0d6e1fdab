"""Keys that a policy selects from the payload, for clients that send none: the same at every entry
point.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.db import connection, connections
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import AsyncClient, Client
from django.test.utils import CaptureQueriesContext
from django.urls import path
from django.views import View
from pytest_django import Settings
from rest_framework import parsers
from rest_framework.authentication import SessionAuthentication
from rest_framework.decorators import api_view, authentication_classes, permission_classes
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import Policy, idempotency_exempt, idempotent
from django_idempotency.errors import ConfigurationError
from django_idempotency.models import IdempotencyRecord
from django_idempotency.rest_framework import IdempotentViewMixin
from testproject.payments.models import Effect

from .conftest import KEY, effects

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
]

SELECTED = "body.[shop, order_id]"
TERMS: dict[str, Any] = {"key": SELECTED, "fingerprint": "body.amount"}
ORDER = {"shop": 7, "order_id": "o-1", "amount": 12.5, "sent_at": "2026-09-01T12:00:00Z"}


def work(request: Any) -> dict[str, Any]:
    effect = Effect.objects.create(label="work")
    handle = getattr(request, "idempotency", None)
    return {"id": effect.pk, "key": handle.key if handle else None}


@idempotent(**TERMS)
def function(request: HttpRequest) -> HttpResponse:
    json.loads(request.body or b"0")  # the whole body is there
    return JsonResponse(work(request), status=201)


@idempotent(**TERMS)
class Class(View):
    def post(self, request: HttpRequest) -> HttpResponse:
        return JsonResponse(work(request), status=201)


class Method(View):
    @idempotent(**TERMS)
    def post(self, request: HttpRequest) -> HttpResponse:
        return JsonResponse(work(request), status=201)


async def awork(request: HttpRequest) -> HttpResponse:
    effect = await Effect.objects.acreate(label="work")
    handle: Any = getattr(request, "idempotency", None)
    return JsonResponse({"id": effect.pk, "key": handle.key if handle else None}, status=201)


class Api(APIView):
    authentication_classes = (SessionAuthentication,)
    permission_classes = ()

    def post(self, request: Request) -> Response:
        assert request.data is not None
        return Response(work(request._request), status=201)


class Mixed(IdempotentViewMixin, Api):
    idempotency = Policy(**TERMS)


class Choosing(IdempotentViewMixin, Api):
    def get_idempotency_policy(self) -> Policy:
        return Policy(**TERMS)


def api(request: Request) -> Response:
    return Response(work(request._request), status=201)


def derived(cls: Any, **members: Any) -> Any:
    return type(cls.__name__, (cls,), members)


def session(function: Any) -> Any:
    return authentication_classes([SessionAuthentication])(permission_classes([])(function))


def plain(request: HttpRequest) -> HttpResponse:
    return JsonResponse(work(request), status=201)


#: Entry point → its view. The views of the middleware get TERMS as settings.
ENTRY_POINTS: dict[str, Any] = {
    "function": function,
    "class": Class.as_view(),
    "method": Method.as_view(),
    "async": idempotent(guarantee="lease", **TERMS)(awork),
    "mixin": Mixed.as_view(),
    "choosing": Choosing.as_view(),
    "rest-class": idempotent(**TERMS)(derived(Api)).as_view(),
    "above": idempotent(**TERMS)(api_view(["POST"])(session(api))),
    "below": api_view(["POST"])(session(idempotent(**TERMS)(api))),
    "middleware": plain,
    "adapted": Api.as_view(),
    "asgi": plain,  # the middleware over ASGI: one hop to a thread, for claim, view and settle
    "awaited": awork,  # and an async view
}
UNDER_MIDDLEWARE = ("middleware", "adapted", "asgi", "awaited")
OVER_ASGI = ("async", "asgi", "awaited")


class Form(Mixed):
    parser_classes = (parsers.FormParser, parsers.MultiPartParser)


class Early(BasePermission):
    def has_permission(self, request: Request, view: Any) -> bool:
        return request.data is not None


class ReadEarly(Mixed):
    permission_classes = (Early,)  # type: ignore[assignment]


@idempotency_exempt
def exempt(request: HttpRequest) -> HttpResponse:
    return plain(request)


def of_header(request: Any) -> Any:
    return request.headers.get("X-Order"), request.user


urlpatterns = [
    *(path(f"{name}/", view) for name, view in ENTRY_POINTS.items()),
    path("form/", idempotent(**TERMS)(plain)),
    path("rest-form/", Form.as_view()),
    path("early/", ReadEarly.as_view()),
    path("required/", idempotent(required=True, **TERMS)(plain)),
    path("required-mixin/", derived(Mixed, idempotency=Policy(required=True, **TERMS)).as_view()),
    path("orders/<int:pk>/", idempotent(**TERMS)(lambda request, pk: plain(request))),
    path("callable/", idempotent(key=of_header)(plain)),
    path("undigestible/", idempotent(key=lambda request: [object()])(plain)),
    path("whole/", idempotent(key="body")(plain)),
    path("exempt/", exempt),
]

Send = Callable[..., Any]


@pytest.fixture
def send(user: User, settings: Settings) -> Send:
    """Return a function that posts an order, without a header unless one is given."""
    settings.IDEMPOTENCY = {}
    mine = user

    def send(
        entry_point: str,
        body: Any = ORDER,
        *,
        user: User | None = mine,
        form: bool = False,
        **extra: Any,
    ) -> Any:
        client: Any = (AsyncClient if entry_point in OVER_ASGI else Client)(
            raise_request_exception=False
        )
        if user is not None:
            client.force_login(user)
        if not form:
            extra.setdefault("content_type", "application/json")
            body = body if isinstance(body, str) else json.dumps(body)
        return (async_to_sync(client.post) if entry_point in OVER_ASGI else client.post)(
            f"/{entry_point}/", body, **extra
        )

    return send


@pytest.fixture(params=ENTRY_POINTS)
def entry_point(request: pytest.FixtureRequest, send: Send, settings: Settings) -> Send:
    """Return a function that posts to one entry point."""
    if request.param in UNDER_MIDDLEWARE:
        settings.IDEMPOTENCY = {name.upper(): value for name, value in TERMS.items()}
    if request.param == "awaited":
        settings.IDEMPOTENCY = {**settings.IDEMPOTENCY, "GUARANTEE": "lease"}

    def entry_point(body: Any = ORDER, **extra: Any) -> Any:
        return send(request.param, body, **extra)

    return entry_point


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    ours = [record for record in caplog.records if record.name == "django_idempotency"]
    return [record.getMessage() for record in ours if record.levelno == logging.WARNING]


# -------------------------------------------------------------------------------- every entry point


def test_a_retry_without_a_header_gets_the_first_answer(entry_point: Send) -> None:
    """What is not selected may change between the two requests, and so may the form of the body."""
    first = entry_point()
    retry = entry_point({"order_id": "o-1", "amount": 12.50, "sent_at": "later", "shop": 7})
    assert (first.status_code, retry.status_code) == (201, 201)
    assert retry.content == first.content
    assert retry["Idempotent-Replayed"] == "true"
    assert effects() == 1


def test_the_view_sees_the_selected_key(entry_point: Send) -> None:
    """`request.idempotency.key` is the key of the record."""
    key = entry_point().json()["key"]
    assert key == IdempotencyRecord.objects.get().key
    assert key.startswith("sel:")
    assert len(key) == len("sel:") + 64


def test_another_key_is_another_operation(entry_point: Send) -> None:
    """Keys differ by type and value: the shop 7 is not the shop "7"."""
    for body in (
        ORDER,
        {**ORDER, "order_id": "o-2"},
        {**ORDER, "shop": "7"},
        {**ORDER, "shop": True},
    ):
        assert "Idempotent-Replayed" not in entry_point(body)
    assert effects() == 4


def test_what_must_not_change_is_compared(entry_point: Send) -> None:
    """A changed value gets 422, and the first response is kept."""
    entry_point()
    mismatch = entry_point({**ORDER, "amount": 12.51})
    assert (mismatch.status_code, mismatch.json()["code"]) == (422, "request-mismatch")
    assert entry_point()["Idempotent-Replayed"] == "true"
    assert effects() == 1


@pytest.mark.parametrize(
    "body",
    [{**ORDER, "order_id": None}, {**ORDER, "shop": ""}, {"amount": 1}, []],
    ids=["null", "empty", "absent", "no object"],
)
def test_a_missing_key_runs_unguarded(
    entry_point: Send, body: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A key that is missing in part or in full means no record, no query of the store, and one
    warning per request.
    """
    with (
        CaptureQueriesContext(connection) as queries,
        caplog.at_level(logging.WARNING, "django_idempotency"),
    ):
        assert entry_point(body).status_code == 201
    assert not any(IdempotencyRecord._meta.db_table in query["sql"] for query in queries)
    assert effects() == 1
    (warning,) = warnings(caplog)
    assert warning.endswith(
        "runs unguarded: all or part of what its key is selected from is missing."
    )


def test_a_header_wins(entry_point: Send) -> None:
    """A client that sends a key has said what the operation is."""
    first = entry_point(headers={"Idempotency-Key": KEY})
    assert first.json()["key"] == KEY
    assert entry_point().json()["key"] != KEY
    assert (
        entry_point({**ORDER, "order_id": "o-9"}, headers={"Idempotency-Key": KEY})[
            "Idempotent-Replayed"
        ]
        == "true"
    )
    assert effects() == 2


def test_a_malformed_header_is_refused(entry_point: Send) -> None:
    """A malformed header does not fall back to a selected key."""
    assert entry_point(headers={"Idempotency-Key": "a,b"}).json()["code"] == "key-malformed"
    assert effects() == 0


def test_no_request_without_a_principal_is_guarded(
    entry_point: Send, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    """A client without a key is not refused for being anonymous: it runs unguarded, and the log
    says so.
    """
    with caplog.at_level(logging.WARNING, "django_idempotency"):
        assert [entry_point(user=None).status_code for _ in range(2)] == [201, 201]
    assert effects() == 2
    under_middleware = any(f"[{name}]" in request.node.name for name in UNDER_MIDDLEWARE)
    assert len(warnings(caplog)) == (0 if under_middleware else 2)


def test_keys_of_two_users_never_meet(entry_point: Send, other_user: User) -> None:
    """One order id, two users: two operations."""
    first, theirs = entry_point(), entry_point(user=other_user)
    assert (theirs.status_code, "Idempotent-Replayed" in theirs) == (201, False)
    assert theirs.json()["id"] != first.json()["id"]
    assert entry_point(user=other_user)["Idempotent-Replayed"] == "true"


def test_under_atomic_requests(
    entry_point: Send, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """The claim joins the request's transaction, as with a header. A lease is excluded from it."""
    if "[awaited]" in request.node.name:
        pytest.skip("Django refuses it: the middleware cannot exclude it")
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", True)
    assert [entry_point().status_code, entry_point()["Idempotent-Replayed"], effects()] == [
        201,
        "true",
        1,
    ]
    assert entry_point({"amount": 1}).status_code == 201  # unguarded


# --------------------------------------------------------------------------------- what is selected


def test_two_routes_never_meet(send: Send) -> None:
    """The path, with the values in it, is part of the operation."""
    keys = {send(route).json()["key"] for route in ("function", "orders/1", "orders/2", "mixin")}
    assert len(keys) == 4
    assert effects() == 4


@pytest.mark.parametrize("url", ["required", "required-mixin"])
@pytest.mark.parametrize(
    ("named", "body", "code"),
    [(True, {"amount": 1}, "key-missing"), (False, ORDER, "scope-required")],
)
def test_a_required_key(
    send: Send, user: User, url: str, *, named: bool, body: Any, code: str
) -> None:
    """400 if no key can be selected, or if it would have no owner; the view does not run."""
    answer = send(url, body, user=user if named else None)
    assert (answer.status_code, answer.json()["code"], effects()) == (400, code, 0)
    assert [send(url).status_code, effects()] == [201, 1]


FIELDS = {"shop": "7", "order_id": "o-1", "amount": "12.5"}


@pytest.mark.parametrize("url", ["form", "rest-form"])
@pytest.mark.parametrize("multipart", [True, False], ids=["multipart", "urlencoded"])
def test_forms(send: Send, url: str, multipart: bool) -> None:
    """Forms are selected from by field, and the view can still read the fields."""

    def post(**fields: Any) -> Any:
        data = {**FIELDS, **fields}
        if multipart:
            return send(url, data, form=True)
        return send(url, urlencode(data), content_type="application/x-www-form-urlencoded")

    assert [post().status_code, post(sent_at="later")["Idempotent-Replayed"]] == [201, "true"]
    assert post(amount="13").status_code == 422
    assert "Idempotent-Replayed" not in post(order_id="o-2")
    assert effects() == 2


@pytest.mark.parametrize("url", ["required", "required-mixin"])
def test_a_broken_form_has_no_key(send: Send, url: str) -> None:
    """If a key is required, the problem names the body, not a header that the project does not
    use.
    """
    problem = send(url, "--b\r\n", content_type="multipart/form-data")
    assert (problem.status_code, problem.json()["code"], effects()) == (400, "key-missing", 0)
    assert "selected from its body, which cannot be read" in problem.json()["detail"]


@pytest.mark.parametrize(("url", "ran"), [("form", 1), ("rest-form", 0)])
def test_a_broken_form_without_a_key_is_left_to_the_view(
    send: Send, url: str, ran: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The request runs unguarded, the log says so, and the view refuses the form if it reads it."""
    with caplog.at_level(logging.WARNING, "django_idempotency"):
        response = send(url, "--b\r\n", content_type="multipart/form-data")
    assert (response.status_code, effects()) == (201 if ran else 400, ran)
    (warning,) = warnings(caplog)
    assert warning.endswith(
        "runs unguarded: its key is selected from its body, which cannot be read."
    )


def test_a_permission_that_has_read_the_data(send: Send) -> None:
    """The key is selected from the data that the permission has read."""
    assert [send("early").status_code, send("early")["Idempotent-Replayed"], effects()] == [
        201,
        "true",
        1,
    ]


def test_a_function_of_the_request(send: Send) -> None:
    """A function returns any value that can be hashed; a part that is None is missing."""
    first = send("callable", headers={"X-Order": "o-1"})
    assert send("callable", headers={"X-Order": "o-1"}).content == first.content
    assert send("callable").json()["key"] is None
    assert effects() == 2


def test_what_has_no_meaning_is_the_projects_mistake(browser: Client) -> None:
    """A value that cannot be hashed is a 500, and the message says where it is."""
    with pytest.raises(
        ConfigurationError, match=r"Policy\.key cannot be hashed: .*a value of type object"
    ):
        browser.post("/undigestible/")
    assert effects() == 0


def test_null_is_a_value_inside_what_is_selected_whole(send: Send) -> None:
    """Only a key that is composed of parts can miss one."""
    body = {"order_id": 1, "note": None}
    assert [send("whole", body).status_code, send("whole", body)["Idempotent-Replayed"]] == [
        201,
        "true",
    ]


def test_an_exempt_view(send: Send, settings: Settings) -> None:
    """No key is selected for an exempt view, and nothing is logged."""
    settings.IDEMPOTENCY = {"KEY": SELECTED}
    assert send("exempt").json()["key"] is None


# -------------------------------------------------------------------------------- wrong expressions

WRONG = [
    ({"key": "body.["}, "it ends too early"),
    (
        {"key": "[body.id, shop]"},
        "asks for 'shop', but a request has body, headers, method, path, query, user",
    ),
    ({"key": "header.x"}, "Type 'headers' instead"),
    ({"fingerprint": "nope(body)"}, r"there is no function nope\(\)"),
    ({"fingerprint": "amount"}, '"request", "raw", "headers", a JMESPath expression'),
    ({"key": "body.id", "anonymous": "shared"}, "equal payloads of two clients"),
]


@pytest.mark.parametrize(("fields", "said"), WRONG, ids=lambda value: str(value)[:30])
def test_a_wrong_expression_fails_where_it_is_declared(fields: dict[str, Any], said: str) -> None:
    """A wrong expression fails at its declaration, not at the first request."""
    with pytest.raises(ValueError, match=said):
        idempotent(**fields)
    with pytest.raises(ValueError, match=said):
        derived(Mixed, idempotency=Policy(**fields))
