"""`GET` and `DELETE` of a key: a client asks about its own operation, and cancels it before it begins."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.urls import path

from django_idempotency import Policy
from django_idempotency.core.hashing import record_id
from django_idempotency.core.key_formats import AHEAD
from django_idempotency.core.records import Status
from django_idempotency.models import IdempotencyRecord
from django_idempotency.profiles.shipped import REPEATABILITY
from django_idempotency.publishing.keys import IdempotencyKeyView
from django_idempotency.rest_framework.keys import IdempotencyKeyView as RestKeyView
from django_idempotency.runtime import switch
from django_idempotency.stores.orm import ORMStore
from django_idempotency.testing.tickets import make_ticket
from testproject.urls import urlpatterns as routes
from tests.stores.helpers import atomic_ticket, elsewhere
from tests.support.factories import TokenFactory, UserFactory

from .conftest import KEY, Connect, Sender, effects

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]

#: A client's requests about a key: `ask("GET")`.
Ask = Callable[..., Any]


urlpatterns = [
    *routes,
    path("keys/<path:key>", IdempotencyKeyView.as_view()),
    path("api/keys/<path:key>", RestKeyView.as_view()),
    path("stripe/<path:key>", IdempotencyKeyView.as_view(policy=Policy(profile="stripe"))),
    path(
        "clients/<path:key>", IdempotencyKeyView.as_view(policy=Policy(profile=replace(REPEATABILITY, max_length=36)))
    ),
]


def asking(user: User, url: str) -> Ask:
    client, headers = Client(raise_request_exception=False), {}
    if url.startswith("/api/"):
        headers["Authorization"] = f"Token {TokenFactory(user=user).key}"
    else:
        client.force_login(user)
    return lambda method, key=KEY: client.generic(method, f"{url}{key}", headers=headers)


@pytest.fixture(params=["/keys/", "/api/keys/"])
def ask(request: pytest.FixtureRequest, user: User) -> Ask:
    return asking(user, request.param)


@pytest.fixture
def charge(user: User, connect: Connect) -> Sender:
    return connect("/plain/charges/", user)


def told(response: Any) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


def test_a_key_that_nobody_sent(ask: Ask) -> None:
    """404, with the reason."""
    assert told(ask("GET")) == (404, "key-unknown")


def test_a_finished_operation(ask: Ask, charge: Sender) -> None:
    """The caller learns how it ended, and gets its response by a retry, which asks each check again."""
    charge()
    response = ask("GET")
    assert response.json() == {"key": KEY, "state": "completed", "attempt": 1, "response": {"status": 201}}
    assert "no-store" in response["Cache-Control"]
    assert told(ask("DELETE")) == (409, "operation-finished")
    assert (charge()["Idempotency-Status"], effects()) == ("replayed", 1)


def test_cancelled_before_it_began(ask: Ask, entry_point: Sender) -> None:
    """A late first request does not run, whatever its body; cancelling again changes nothing."""
    assert [ask("DELETE").status_code for _ in range(2)] == [204, 204]
    assert ask("GET").json() == {"key": KEY, "state": "cancelled", "attempt": 1}
    for body in (None, {"amount": 1, "currency": "inr"}):
        response = entry_point(body)
        assert (told(response), response["Stripe-Should-Retry"]) == ((409, "operation-cancelled"), "false")
    assert effects() == 0
    assert entry_point(key="another-" + KEY).status_code == 201


def test_a_failed_operation(ask: Ask, charge: Sender) -> None:
    """A request that was refused can still be cancelled, so that no retry runs it."""
    refused = {"amount": -1, "currency": "inr"}
    assert charge(refused).status_code == 400
    assert ask("GET").json()["state"] == "free"
    assert ask("DELETE").status_code == 204
    assert told(charge()) == (409, "operation-cancelled")


@pytest.mark.parametrize(("lease", "state", "deleted"), [(30, "running", 409), (0, "lapsed", 204)])
def test_while_it_runs(ask: Ask, user: User, lease: int, state: str, deleted: int) -> None:
    """What runs is not cancelled. An owner that has not been heard of does not keep its key."""
    ORMStore().claim(make_ticket(key=KEY, scope=f"user:auth.user:{user.pk}", lease=lease))
    assert ask("GET").json()["state"] == state
    response = ask("DELETE")
    assert response.status_code == deleted
    if deleted == 409:
        assert (response.json()["code"], int(response["Retry-After"]) >= 1) == ("in-progress", True)


def test_a_cancellation_that_died_halfway(charge: Sender, user: User) -> None:
    """It was never confirmed, so once its lease has ended the request runs."""
    scope = f"user:auth.user:{user.pk}"
    ORMStore().claim(make_ticket(key=KEY, scope=scope, lease=0)._replace(digest=b"", id=record_id(scope, KEY)))
    assert charge().status_code == 201
    assert (effects(), IdempotencyRecord.objects.get().attempt) == (1, 2)


def test_somebody_elses_key(user: User, charge: Sender) -> None:
    """Keys of two principals never meet: a stranger sees nothing, and cancels nothing."""
    charge()
    stranger = asking(UserFactory(), "/keys/")
    assert told(stranger("GET")) == (404, "key-unknown")
    assert stranger("DELETE").status_code == 204
    assert charge()["Idempotency-Status"] == "replayed"


def test_nobody(client: Client) -> None:
    """Without a principal there is no operation of one's own; REST framework authenticates first."""
    assert told(client.get(f"/keys/{KEY}")) == (400, "scope-required")
    assert client.delete(f"/api/keys/{KEY}").status_code == 401
    assert not IdempotencyRecord.objects.exists()


def test_a_malformed_key(ask: Ask) -> None:
    """Nothing is stored for it."""
    for method in ("GET", "DELETE"):
        assert told(ask(method, "caf%C3%A9")) == (400, "key-malformed")
    assert not IdempotencyRecord.objects.exists()


def test_a_key_in_another_spelling(ask: Ask, charge: Sender, settings: Any) -> None:
    """What is cancelled is the key, however it is spelled."""
    settings.IDEMPOTENCY = {"KEY_FORMAT": "uuid"}
    assert ask("DELETE", KEY.upper()).status_code == 204
    assert told(charge()) == (409, "operation-cancelled")
    assert ask("GET", KEY.replace("-", "")).json()["key"] == KEY
    assert told(ask("DELETE", "order-17")) == (400, "key-malformed")


def test_a_cancelled_key_with_a_date(ask: Ask, charge: Sender, settings: Any) -> None:
    """The cancellation is kept for longer than the key would be accepted."""
    settings.IDEMPOTENCY = {"KEY_FORMAT": "uuid7"}
    key = str(UUID(int=int(time.time() * 1000) << 80 | 7 << 76 | 2 << 62))
    assert ask("DELETE", key).status_code == 204
    record = IdempotencyRecord.objects.get()
    assert (record.expires_at - record.created_at).total_seconds() == 86400 + 2 * AHEAD
    assert told(ask("DELETE", "017f22e2-79b0-7cc3-98c4-dc0c0c07398f")) == (
        412,
        "key-expired",
    )  # it cannot begin any more


def test_nothing_is_cancelled_where_nothing_is_guarded(ask: Ask, settings: Any) -> None:
    """A 204 would be a promise that nobody keeps."""
    with switch.overridden(enabled=False):
        assert told(ask("DELETE")) == (501, "nothing-guarded")
    settings.IDEMPOTENCY = {"MODE": "observe"}
    assert told(ask("DELETE")) == (501, "nothing-guarded")
    assert told(ask("GET")) == (404, "key-unknown")


def test_a_profile_speaks_here_too(user: User) -> None:
    """The errors have the policy's statuses and shape."""
    response = asking(user, "/stripe/")("GET", "a,b")
    assert (response.status_code, response.json()["error"]["type"]) == (400, "invalid_request_error")


def test_a_client_that_names_itself(user: User) -> None:
    """Its name and its key are judged apart, as in a request."""
    ask = asking(user, "/clients/")
    assert ask("DELETE", f"com.example.app {KEY}").status_code == 204
    assert ask("GET", f"com.example.app {KEY}").json()["state"] == "cancelled"
    assert ask("GET", KEY).status_code == 404
    assert ask("GET", f"caf%C3%A9 {KEY}").status_code == 400


@pytest.mark.parametrize("status", [Status.RUNNING, Status.FREE], ids=["taken over", "after a failure"])
def test_while_an_atomic_guard_holds_the_row(user: User, ask: Ask, status: Status) -> None:
    """Its lease is long over, and a retry has not written anything: the row's lock says that it runs."""
    ticket = atomic_ticket(key=KEY, scope=f"user:auth.user:{user.pk}", lease=0)
    ORMStore().claim(ticket)
    IdempotencyRecord.objects.update(status=status.value)
    assert ask("GET").json()["state"] == ("lapsed" if status is Status.RUNNING else "free")
    with ORMStore().guard(ticket):
        assert elsewhere(partial(ask, "GET")).json()["state"] == "running"
        assert told(elsewhere(partial(ask, "DELETE"))) == (409, "in-progress")
    assert ask("DELETE").status_code == 204


@pytest.mark.either_server
def test_a_race(user: User, connect: Connect) -> None:
    """Either it is cancelled and never runs, or it runs and cannot be cancelled."""
    ask, charge = asking(user, "/keys/"), connect("/plain/charges/", user)

    def apart(act: Callable[[], Any]) -> Any:
        try:
            return act()
        finally:
            connection.close()

    for number in range(6):
        key, before = f"{KEY}-{number}", effects()
        with ThreadPoolExecutor(2) as threads:
            cancelling = threads.submit(apart, partial(ask, "DELETE", key))
            charging = threads.submit(apart, partial(charge, key=key))
        cancelled, charged = cancelling.result().status_code, charging.result()
        if charged.status_code == 201:
            assert (cancelled, effects() - before) == (409, 1)
        else:
            assert charged.json()["code"] in ("operation-cancelled", "in-progress")
            assert effects() == before
            assert cancelled == 204
