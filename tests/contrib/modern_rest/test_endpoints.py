"""Endpoints of django-modern-rest: guarded behind its checks, and their responses are its own."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.core.cache import cache
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, connections
from django.test import override_settings

pytest.importorskip("dmr")

from dmr import Controller
from dmr.endpoint import Endpoint
from dmr.plugins.msgspec import MsgspecSerializer
from dmr.streaming.sse import SSEController
from dmr.test import DMRAsyncClient, DMRClient

from django_idempotency import idempotent
from django_idempotency.errors import ConfigurationError
from django_idempotency.models import IdempotencyRecord
from testproject.payments.models import Effect
from tests.support.factories import UserFactory

from .api import PowerCut

pytestmark = [
    pytest.mark.either_server,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.contrib.modern_rest.api"),
]

KEY = "8e03978e-40d5-43e8-bc93-6894a57f9324"
CHARGES = "/api/charges/"


@pytest.fixture(autouse=True)
def users(db: None) -> list[User]:
    cache.clear()
    return [UserFactory(username="ada"), UserFactory(username="bob")]


def sent(body: Any, key: str, user: str) -> dict[str, Any]:
    headers = {"Authorization": user, **({"Idempotency-Key": key} if key else {})}
    return {"data": json.dumps(body), "headers": headers}


def post(url: str, body: Any = None, *, key: str = KEY, user: str = "ada") -> Any:
    client = DMRClient(raise_request_exception=False)
    return client.post(url, **sent({"amount": 1} if body is None else body, key, user))


def apost(url: str, body: Any = None, *, key: str = KEY, user: str = "ada") -> Any:
    async def run() -> Any:
        client = DMRAsyncClient(raise_request_exception=False)
        return await client.post(url, **sent({"amount": 1} if body is None else body, key, user))

    return async_to_sync(run)()  # in this thread, whose connection it shares


def code(response: Any) -> tuple[int, str]:
    """Return the status, and our code in the error format of the package."""
    return response.status_code, response.json()["detail"][0]["type"]


@pytest.mark.parametrize(
    ("send", "url"), [(post, CHARGES), (apost, "/api/async/"), (post, "/api/documents/")]
)
def test_once(send: Any, url: str) -> None:
    """The work runs once; the response is replayed with its headers; the same key of another user
    is another key.
    """
    first, again, other = send(url), send(url), send(url, user="bob")
    assert [each.status_code for each in (first, again, other)] == [201, 201, 201]
    assert first.content == again.content != other.content
    assert [each["Idempotency-Status"] for each in (first, again, other)] == [
        "created",
        "replayed",
        "created",
    ]
    assert again.get("X-Charge") == first.get("X-Charge")
    assert Effect.objects.count() == 2


@pytest.mark.parametrize(("send", "url"), [(post, CHARGES), (apost, "/api/async/")])
def test_another_body(send: Any, url: str) -> None:
    """422, in the package's own error format, with our code as its type."""
    send(url)
    refused = send(url, {"amount": 2})
    assert code(refused) == (422, "request-mismatch")
    assert (refused["Idempotency-Status"], refused["Content-Type"]) == (
        "mismatch",
        "application/json",
    )


def test_a_required_key() -> None:
    """Without one nothing runs; an endpoint that does not require it runs as without us."""
    assert code(post(CHARGES, key="")) == (400, "key-missing")
    assert not Effect.objects.exists()
    assert apost("/api/async/", key="").status_code == 201


def test_the_errors_of_a_controller() -> None:
    """A controller whose errors are problem documents says ours in the same way."""
    post("/api/documents/")
    refused = post("/api/documents/", {"amount": 2})
    assert (refused.status_code, refused.json()["type"]) == (422, "request-mismatch")


@pytest.mark.parametrize("send", [post, apost])
def test_its_checks_come_first(send: Any) -> None:
    """Who is not authenticated, or sends what is not valid, meets the package, and its key is not
    claimed.
    """
    url = "/api/async/" if send is apost else CHARGES
    send(url)
    assert send(url, user="nobody").status_code == 401
    assert send(url, {"amount": "many"}).status_code in (400, 422)
    assert IdempotencyRecord.objects.count() == Effect.objects.count() == 1


def test_throttling_counts_replays() -> None:
    """A replay is a request."""
    assert [post("/api/throttled/").status_code for _ in range(3)] == [201, 201, 429]
    assert Effect.objects.count() == 1


def test_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    """409 while the first one runs."""
    if connection.vendor == "sqlite":
        pytest.skip("SQLite locks no rows")
    inner: list[Any] = []
    charge = Effect.objects.create

    def slow(**fields: Any) -> Effect:
        with ThreadPoolExecutor(1) as pool:
            inner.append(pool.submit(post, CHARGES).result())
            pool.submit(connections.close_all).result()
        return charge(**fields)

    monkeypatch.setattr(Effect.objects, "create", slow)
    assert post(CHARGES).status_code == 201
    assert code(inner[0]) == (409, "in-progress")
    assert inner[0]["Retry-After"]


@pytest.mark.parametrize(("how", "status"), [("raise", 500), ("bad", 422)])
def test_how_it_fails(how: str, status: int) -> None:
    """After an exception, or a response that does not fit its schema, nothing is kept, and the same
    request runs again.
    """
    for _try in range(2):
        failed = post(CHARGES, {"amount": 1, "how": how})
        assert (failed.status_code, failed.get("Idempotency-Status")) in (
            (status, None),
            (status, "failed"),
        )
        assert not Effect.objects.exists()
    assert post(CHARGES).status_code == 422  # the key is bound to its body


def test_how_it_refuses() -> None:
    """A refusal of the endpoint's own is a response, and is replayed."""
    for status in ("created", "replayed"):
        refused = post(CHARGES, {"amount": 1, "how": "refuse"})
        assert (refused.status_code, refused["Idempotency-Status"]) == (402, status)
        assert Effect.objects.count() == 1


def test_an_async_failure() -> None:
    """A lease is left, and the same request runs again."""
    assert apost("/api/async/", {"amount": 402}).status_code == 500
    assert apost("/api/async/", {"amount": 402}).status_code == 500
    assert code(apost("/api/async/", {"amount": 1})) == (422, "request-mismatch")


def test_an_interrupted_worker() -> None:
    """What is interrupted leaves no effect; its key is claimed until the lease of the claim
    ends.
    """
    with pytest.raises(PowerCut):
        post(CHARGES, {"amount": 1, "how": "die"})
    assert not Effect.objects.exists()
    assert code(post(CHARGES, {"amount": 1, "how": "die"})) == (409, "in-progress")


def test_atomic_requests(settings: Any) -> None:
    """With a key and without, the work is in one transaction, and a failure is rolled back."""
    connection.settings_dict["ATOMIC_REQUESTS"] = True
    try:
        for key in (KEY, ""):
            assert post("/api/spending/", key=key).json()["atomic"]
        Effect.objects.all().delete()
        assert post(CHARGES, {"amount": 1, "how": "raise"}, key="another").status_code == 500
        assert not Effect.objects.exists()
    finally:
        connection.settings_dict["ATOMIC_REQUESTS"] = False


def test_what_is_not_guarded() -> None:
    """Other methods, exempt ones, and those that a subclass adds run each time; inherited ones are
    guarded.
    """
    headers = {"Authorization": "ada", "Idempotency-Key": KEY}
    client = DMRClient()
    assert (
        client.put("/api/charges/", headers=headers).content
        != client.put("/api/charges/", headers=headers).content
    )
    assert (
        client.patch("/api/more/", headers=headers).content
        != client.patch("/api/more/", headers=headers).content
    )
    assert client.get(CHARGES, headers=headers).status_code == 200
    assert post("/api/more/").content == post("/api/more/").content


@override_settings(IDEMPOTENCY={"PROFILE": "stripe"})
def test_a_profile_has_its_own_errors() -> None:
    """Its clients read them."""
    post(CHARGES)
    assert post(CHARGES, {"amount": 2}).json()["error"]["type"] == "idempotency_error"


# ---------------------------------------------------------------------------------- what is refused


def test_streams_are_refused() -> None:
    """Their work is done after the guard has closed."""
    with pytest.raises(ImproperlyConfigured, match="events are made while they are sent"):

        class Events(SSEController[MsgspecSerializer]):
            @idempotent(guarantee="lease")
            async def post(self) -> Any: ...


def test_what_cannot_be_guarded() -> None:
    """An async method without a lease, a safe method, and a class: each says what to type."""
    with pytest.raises(ImproperlyConfigured, match='@idempotent\\(guarantee="lease"\\)'):

        class Async(Controller[MsgspecSerializer]):
            @idempotent
            async def post(self) -> None: ...

    with pytest.raises(ImproperlyConfigured, match="not one of the handlers"):

        class Safe(Controller[MsgspecSerializer]):
            @idempotent
            def get(self) -> None: ...

    with pytest.raises(ImproperlyConfigured, match="put it on the methods"):

        @idempotent
        class Whole(Controller[MsgspecSerializer]):
            def post(self) -> None: ...


def test_an_endpoint_that_passes_the_guard_by(rf: Any) -> None:
    """A subclass with an endpoint_cls that is not ours raises, rather than run unguarded."""
    from .api import Spending

    class Passing(Spending):
        auth = None  # type: ignore[assignment]
        endpoint_cls = Endpoint

    request = rf.post("/", headers={"Idempotency-Key": KEY})
    request.resolver_match = type("Match", (), {"func": staticmethod(Passing.as_view())})()
    with pytest.raises(ConfigurationError, match="endpoint_cls"):
        Passing.as_view()(request)
    assert not Effect.objects.exists()
