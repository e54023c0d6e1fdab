"""`GET` of a key: a client asks about its own operation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import path

from django_idempotency import Policy
from django_idempotency.contrib.dialects import Repeatability
from django_idempotency.contrib.publishing.by_key import IdempotencyKeyView
from django_idempotency.contrib.rest import IdempotencyKeyView as RestKeyView
from django_idempotency.core.records import Status
from django_idempotency.models import IdempotencyRecord
from django_idempotency.stores.orm import ORMStore
from django_idempotency.testing.tickets import make_ticket
from testproject.urls import urlpatterns as routes
from tests.stores.helpers import atomic_ticket, elsewhere
from tests.support.dialects import changed
from tests.support.factories import TokenFactory, UserFactory

from ...entry_points.conftest import KEY, Connect, Sender, effects

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]

#: A client's requests about a key: `ask("GET")`.
Ask = Callable[..., Any]


urlpatterns = [
    *routes,
    path("keys/<path:key>", IdempotencyKeyView.as_view()),
    path("api/keys/<path:key>", RestKeyView.as_view()),
    path("stripe/<path:key>", IdempotencyKeyView.as_view(policy=Policy(profile="stripe"))),
    path(
        "clients/<path:key>",
        IdempotencyKeyView.as_view(policy=Policy(profile=changed(Repeatability, max_length=36))),
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
    """The caller learns how it ended, and gets its response by a retry, which asks each check
    again.
    """
    charge()
    response = ask("GET")
    assert response.json() == {
        "key": KEY,
        "state": "completed",
        "attempt": 1,
        "response": {"status": 201},
    }
    assert "no-store" in response["Cache-Control"]
    assert (charge()["Idempotency-Status"], effects()) == ("replayed", 1)


def test_a_failed_operation(ask: Ask, charge: Sender) -> None:
    """A request that was refused is free, and its retry runs."""
    refused = {"amount": -1, "currency": "inr"}
    assert charge(refused).status_code == 400
    assert ask("GET").json()["state"] == "free"
    assert charge().status_code == 201


@pytest.mark.parametrize(("lease", "state"), [(30, "running"), (0, "abandoned")])
def test_while_it_runs(ask: Ask, user: User, lease: int, state: str) -> None:
    """An owner that has not been heard of is told apart from one that runs."""
    ORMStore().claim(make_ticket(key=KEY, scope=f"user:auth.user:{user.pk}", lease=lease))
    assert ask("GET").json()["state"] == state


def test_asking_is_all(ask: Ask) -> None:
    """Nobody writes a record for a key by asking, nor cancels one: a flood of unseen keys leaves
    nothing.
    """
    for method in ("GET", "DELETE", "POST"):
        assert ask(method).status_code == (404 if method == "GET" else 405)
    assert not IdempotencyRecord.objects.exists()


def test_somebody_elses_key(user: User, charge: Sender) -> None:
    """Keys of two principals never meet: a stranger sees nothing."""
    charge()
    stranger = asking(UserFactory(), "/keys/")
    assert told(stranger("GET")) == (404, "key-unknown")
    assert charge()["Idempotency-Status"] == "replayed"


def test_nobody(client: Client) -> None:
    """Without a principal there is no operation of one's own; REST framework authenticates
    first.
    """
    assert told(client.get(f"/keys/{KEY}")) == (400, "scope-required")
    assert client.get(f"/api/keys/{KEY}").status_code == 401
    assert not IdempotencyRecord.objects.exists()


def test_a_malformed_key(ask: Ask) -> None:
    """Nothing is stored for it."""
    assert told(ask("GET", "caf%C3%A9")) == (400, "key-malformed")
    assert not IdempotencyRecord.objects.exists()


def test_a_key_in_another_spelling(ask: Ask, charge: Sender, settings: Any) -> None:
    """It is one key, however it is spelled."""
    settings.IDEMPOTENCY = {"KEY_FORMAT": "uuid"}
    charge()
    assert (
        ask("GET", KEY.upper()).json()["key"]
        == ask("GET", KEY.replace("-", "")).json()["key"]
        == KEY
    )
    assert told(ask("GET", "order-17")) == (400, "key-malformed")


def test_a_profile_speaks_here_too(user: User) -> None:
    """The errors have the policy's statuses and shape."""
    response = asking(user, "/stripe/")("GET", "a,b")
    assert (response.status_code, response.json()["error"]["type"]) == (
        400,
        "invalid_request_error",
    )


def test_a_client_that_names_itself(user: User) -> None:
    """Its name and its key are judged apart, as in a request."""
    ask = asking(user, "/clients/")
    named = f"com.example.app {KEY}"
    scope = f"user:auth.user:{user.pk}"
    ORMStore().claim(make_ticket(key=named, scope=scope, lease=30))
    assert ask("GET", named).json()["state"] == "running"
    assert ask("GET", KEY).status_code == 404
    assert ask("GET", f"caf%C3%A9 {KEY}").status_code == 400


@pytest.mark.parametrize(
    "status", [Status.RUNNING, Status.FREE], ids=["taken over", "after a failure"]
)
def test_while_an_atomic_guard_holds_the_row(user: User, ask: Ask, status: Status) -> None:
    """Its lease is long over, and a retry has not written anything: the row's lock says that it
    runs.
    """
    ticket = atomic_ticket(key=KEY, scope=f"user:auth.user:{user.pk}", lease=0)
    ORMStore().claim(ticket)
    IdempotencyRecord.objects.update(status=status.value)
    assert ask("GET").json()["state"] == ("abandoned" if status is Status.RUNNING else "failed")
    with ORMStore().guard(ticket):
        assert elsewhere(partial(ask, "GET")).json()["state"] == "running"
