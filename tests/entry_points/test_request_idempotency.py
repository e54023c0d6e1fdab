"""`request.idempotency` in the view: key, attempt, derive(), keep, drop and ttl of this one
response.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import Client
from django.urls import path
from rest_framework.authentication import SessionAuthentication
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import idempotent
from django_idempotency.engine.heartbeat import Heartbeat
from django_idempotency.errors import ConfigurationError, SecretUnknown, StoreUnavailable
from django_idempotency.models import IdempotencyRecord
from django_idempotency.rest_framework import IdempotentViewMixin
from django_idempotency.runtime.registry import stores
from django_idempotency.stores.memory import MemoryStore
from testproject.payments.models import Effect

from .conftest import KEY, Connect, Sender

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
]


@idempotent()
def view(request: HttpRequest) -> HttpResponse:
    handle: Any = request.idempotency  # type: ignore[attr-defined]
    if "ttl" in request.GET:
        handle.ttl = timedelta(minutes=5)
    if "bad-ttl" in request.GET:
        handle.ttl = 0
    assert type(handle.key) is str  # a step stores it, and so may the view
    keys = {label: handle.derive(label) for label in ("stripe", "bank")}
    return JsonResponse(
        {"key": handle.key, "attempt": handle.attempt, **keys},
        status=int(request.GET.get("status", 201)),
    )


#: What a long view does, step by step.
ACTS: list[Callable[[], object]] = []


@idempotent(lease=30)
def long_view(request: HttpRequest) -> HttpResponse:
    handle: Any = request.idempotency  # type: ignore[attr-defined]
    seen, acts = [handle.lost], ACTS.copy()
    ACTS.clear()  # the invocation that takes over has nothing more to do
    for act in acts:
        act()
        seen.append(handle.lost)
    return JsonResponse({"attempt": handle.attempt, "lost": seen})


def paying(request: Any) -> dict[str, str]:
    """Ask for a key, and pay."""
    stripe = request.idempotency.derive("stripe")
    Effect.objects.create(label="charge", idempotency_key="", attempt=0)
    return {"stripe": stripe}


class RestView(IdempotentViewMixin, APIView):
    def post(self, request: Request) -> Response:
        return Response(paying(request), status=201)


@idempotent(guarantee="lease")
async def async_view(request: HttpRequest) -> HttpResponse:
    handle: Any = request.idempotency  # type: ignore[attr-defined]
    handle.derive("stripe")
    await Effect.objects.acreate(label="charge", idempotency_key="", attempt=0)
    return JsonResponse({}, status=201)


@idempotent()
def plain_view(request: HttpRequest) -> HttpResponse:
    return JsonResponse(paying(request), status=201)


def bare_view(request: HttpRequest) -> HttpResponse:
    """For the middleware."""
    return JsonResponse(paying(request), status=201)


def asking(request: Any) -> dict[str, object]:
    handle = request.idempotency
    handle.ttl = 60
    handle.drop()
    return {"has_key": bool(handle), "key": handle.key, "lost": handle.lost}


@idempotent()
def asking_view(request: HttpRequest) -> HttpResponse:
    return JsonResponse(asking(request))


class AskingView(IdempotentViewMixin, APIView):
    authentication_classes = ()
    permission_classes = ()

    def get(self, request: Request) -> Response:
        return Response(asking(request))

    post = get


class Unreachable(MemoryStore):
    supports_atomic = True

    def claim(self, ticket: Any) -> Any:
        raise StoreUnavailable


urlpatterns = [
    path("view/", view),
    path("long-view/", long_view),
    path("degraded/decorator/", plain_view),
    path("degraded/async/", async_view),
    path("degraded/rest/", RestView.as_view(authentication_classes=[SessionAuthentication])),
    path("degraded/middleware/", bare_view),
    path("asking/decorator/", asking_view),
    path("asking/rest/", AskingView.as_view()),
]


@pytest.fixture
def send(user: User, connect: Connect) -> Sender:
    return connect("/view/", user)


def test_key_and_attempt(send: Sender) -> None:
    """The view sees the key unquoted, and the attempt counts the runs."""
    assert send(key=f'"{KEY}"', url="/view/?status=503").json()["key"] == KEY
    assert send(url="/view/?status=503").json()["attempt"] == 2


def test_the_downstream_key_is_the_same_at_every_attempt(send: Sender) -> None:
    """A stable key makes an effect elsewhere happen once; labels, keys and users have their own."""
    first, second = send(url="/view/?status=503").json(), send(url="/view/?status=503").json()
    other = send(url="/view/?status=503", key="another").json()
    assert (first["stripe"], first["bank"]) == (second["stripe"], second["bank"])
    assert len({first["stripe"], first["bank"], other["stripe"], other["bank"]}) == 4
    assert len(first["stripe"]) == 64


@pytest.mark.parametrize(
    "url", ["/degraded/decorator/", "/degraded/async/", "/degraded/rest/", "/degraded/middleware/"]
)
def test_nothing_is_derived_without_the_store(
    url: str, user: User, connect: Connect, settings: Any
) -> None:
    """The view runs, since its policy says "open", and derive() raises: 503, with nothing done."""
    settings.IDEMPOTENCY = {"ON_STORE_FAILURE": "open"}
    send = connect(url, user)
    with stores.replaced("default", Unreachable()):
        answer = send()
    assert (answer.status_code, answer.json()["code"], answer["Retry-After"]) == (
        503,
        "store-unavailable",
        "1",
    )
    assert Effect.objects.count() == 0
    assert send().status_code == 201
    assert Effect.objects.count() == 1


def test_users_derive_different_keys(send: Sender, other_user: User, connect: Connect) -> None:
    """The same client key of two users means two operations."""
    assert send().json()["stripe"] != connect("/view/", other_user)().json()["stripe"]


def test_rotating_the_secret_between_attempts_changes_nothing(
    send: Sender, user: User, settings: Any
) -> None:
    """The secret of attempt 1 is found among the fallbacks; a new operation uses the new secret."""
    before = send(url="/view/?status=503").json()["stripe"]
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "rotated"
    assert send(url="/view/?status=503").json()["stripe"] == before
    settings.IDEMPOTENCY = {
        "DERIVE_SECRET": "its own",
        "DERIVE_SECRET_FALLBACKS": settings.SECRET_KEY_FALLBACKS,
    }
    settings.SECRET_KEY_FALLBACKS = []
    send.client.force_login(user)  # the rotation has ended the user's session
    assert send(url="/view/?status=503").json()["stripe"] == before
    assert send(url="/view/?status=503", key="new").json()["stripe"] != before


def test_an_unknown_secret_is_an_error_and_never_another_key(
    send: Sender, user: User, settings: Any
) -> None:
    """Another downstream key could repeat an effect that has happened."""
    send(url="/view/?status=503")
    settings.SECRET_KEY = "rotated without a fallback"
    send.client.force_login(user)
    send.client.raise_request_exception = True
    with pytest.raises(SecretUnknown, match="DERIVE_SECRET_FALLBACKS"):
        send(url="/view/?status=503")


def test_a_response_may_have_its_own_ttl(send: Sender) -> None:
    """The TTL counts from the completion."""
    send(url="/view/?ttl")
    record = IdempotencyRecord.objects.get()
    assert record.completed_at is not None
    assert record.expires_at - record.completed_at == timedelta(minutes=5)


def test_a_ttl_must_be_positive(send: Sender) -> None:
    """Zero would forget the response at once."""
    send.client.raise_request_exception = True
    with pytest.raises(ValueError, match="positive"):
        send(url="/view/?bad-ttl")


@dataclass
class Clocks:
    """The store's clock, and that of our process, where no thread renews the lease."""

    stored: datetime = datetime(2030, 1, 1, tzinfo=timezone.utc)
    seconds: float = 0.0

    def store_goes(self, seconds: float) -> None:
        self.stored += timedelta(seconds=seconds)

    def we_go(self, seconds: float) -> None:
        self.seconds += seconds

    def beat(self) -> None:
        self.heartbeat.beat(self.seconds)

    def __post_init__(self) -> None:
        self.heartbeat = Heartbeat(clock=lambda: self.seconds)


@pytest.fixture
def clocks(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Clocks:
    memory = {"BACKEND": "django_idempotency.stores.memory.MemoryStore"}
    settings.IDEMPOTENCY = {"STORES": {"default": memory}, "GUARANTEE": "lease"}
    clocks = Clocks()
    monkeypatch.setattr(stores["default"], "_clock", lambda: clocks.stored)
    monkeypatch.setattr(clocks.heartbeat, "_start", lambda: None)
    monkeypatch.setattr("django_idempotency.engine.lease.heartbeat", clocks.heartbeat)
    return clocks


def test_a_lease_that_another_has_taken(send: Sender, clocks: Clocks) -> None:
    """A view that asks learns of it with the next heartbeat, though by our own clock the lease
    still lasts.
    """
    others: list[Any] = []
    ACTS[:] = [
        lambda: clocks.store_goes(31),
        lambda: others.append(send(url="/long-view/").json()),
        lambda: clocks.we_go(10),
        clocks.beat,
    ]
    assert send(url="/long-view/").json() == {
        "attempt": 1,
        "lost": [False, False, False, False, True],
    }
    assert others == [{"attempt": 2, "lost": [False]}]
    assert send(url="/long-view/").json() == others[0]


def test_a_lease_that_has_ended_by_the_clock(send: Sender, clocks: Clocks) -> None:
    """A renewed lease does not end; if the heartbeat itself hangs, the lease ends by our own
    clock.
    """
    ACTS[:] = [
        lambda: clocks.we_go(29.9),
        clocks.beat,
        lambda: clocks.we_go(29.9),
        lambda: clocks.we_go(0.1),
    ]
    assert send(url="/long-view/").json() == {
        "attempt": 1,
        "lost": [False, False, False, False, True],
    }


# ------------------------------------------------------------------------------------ without a key


@pytest.mark.parametrize(
    "path", [f"/degraded/{name}/" for name in ("decorator", "async", "rest", "middleware")]
)
def test_the_first_client_without_a_key(path: str, user: User) -> None:
    """A view that passes on a derived key is told what to type, before it pays."""
    client = Client()
    client.force_login(user)
    with pytest.raises(ConfigurationError, match="required=True"):
        client.post(path)
    assert not Effect.objects.exists()


@pytest.mark.parametrize("path", ["/asking/decorator/", "/asking/rest/"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_there_is_always_something_to_ask(
    path: str, method: str, django_assert_num_queries: Any
) -> None:
    """A guarded view may ask `if request.idempotency:` whatever the request is, and that reads and
    queries nothing.
    """
    client = Client()
    with django_assert_num_queries(0):
        assert client.generic(method, path, "not read").json() == {
            "has_key": False,
            "key": "",
            "lost": False,
        }
