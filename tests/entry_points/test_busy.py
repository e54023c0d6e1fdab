"""A duplicate while the first request runs; an unreachable store; a test case's own transaction."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, connections
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path

from django_idempotency import idempotent
from django_idempotency.core.records import Ticket
from django_idempotency.errors import StoreUnavailable
from django_idempotency.functions import deadline
from django_idempotency.models import IdempotencyRecord
from django_idempotency.stores.orm import ORMStore

from .conftest import Connect, Sender, effects
from .outcome_views import write

transactional = pytest.mark.django_db(transaction=True)
pytestmark = pytest.mark.urls(__name__)

entered, leave = threading.Event(), threading.Event()


def slow(request: HttpRequest) -> HttpResponse:
    write()
    if not entered.is_set():
        entered.set()
        assert leave.wait(20)
    return JsonResponse({}, status=201)


urlpatterns = [
    path("reject/", idempotent()(slow)),
    path("wait/", idempotent(wait=15)(slow)),
    path("lease-wait/", idempotent(wait=15, guarantee="lease")(slow)),
    path("open/", idempotent(on_store_failure="open")(slow)),
]


@pytest.fixture(autouse=True)
def events() -> Iterator[None]:
    entered.clear()
    leave.clear()
    yield
    leave.set()


def in_thread(send: Sender, answers: list[Any]) -> threading.Thread:
    def call() -> None:
        answers.append(send())
        connections.close_all()

    thread = threading.Thread(target=call)
    thread.start()
    return thread


@transactional
def test_a_duplicate_is_refused_at_once(user: User, connect: Connect) -> None:
    """While the first runs: 409 with Retry-After, and 422 for another body.

    Afterwards: the replay.
    """
    answers: list[Any] = []
    send = connect("/reject/", user)  # now: on SQLite the first one is the only writer
    first = in_thread(connect("/reject/", user), answers)
    assert entered.wait(20)
    busy = send()
    assert (busy.status_code, busy.json()["code"]) == (409, "in-progress")
    assert int(busy["Retry-After"]) >= 1
    assert send({"amount": 1}).status_code == 422
    leave.set()
    first.join(20)
    assert answers[0].status_code == 201
    assert connect("/reject/", user)()["Idempotent-Replayed"] == "true"
    assert effects() == 1


@transactional
@pytest.mark.parametrize("url", ["/wait/", "/lease-wait/"])
def test_a_duplicate_may_wait(
    user: User, connect: Connect, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With wait=5 it gets the replay as soon as there is one, in a process of any size."""
    monkeypatch.setattr("threading.active_count", lambda: 1)
    first_sender, second_sender = connect(url, user), connect(url, user)
    answers: list[Any] = []
    first = in_thread(first_sender, answers)
    assert entered.wait(20)
    waits: list[float] = []
    wait_in_store = ORMStore.wait

    def wait(store: ORMStore, ticket: Ticket, *, seconds: float) -> None:
        waits.append(seconds)
        leave.set()
        wait_in_store(store, ticket, seconds=seconds)

    monkeypatch.setattr(ORMStore, "wait", wait)
    second = second_sender()
    first.join(20)
    assert waits
    assert (second.status_code, second["Idempotent-Replayed"]) == (201, "true")
    assert effects() == 1


@pytest.fixture
def unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    def claim(self: ORMStore, ticket: Any) -> Any:
        raise StoreUnavailable

    monkeypatch.setattr(ORMStore, "claim", claim)


@pytest.mark.django_db
@pytest.mark.usefixtures("unreachable")
def test_an_unreachable_store_is_a_503(user: User, connect: Connect) -> None:
    """503 with Retry-After, and the view did not run."""
    answer = connect("/reject/", user)()
    assert (answer.status_code, answer.json()["code"], answer["Retry-After"]) == (
        503,
        "store-unavailable",
        "1",
    )
    assert effects() == 0


@pytest.mark.django_db
@pytest.mark.usefixtures("unreachable")
def test_an_unreachable_store_may_leave_it_open(user: User, connect: Connect) -> None:
    """With on_store_failure="open" the view runs unguarded, and its response says so."""
    entered.set()
    answer = connect("/open/", user)()
    assert (answer.status_code, answer["Idempotency-Degraded"]) == (201, "true")
    assert effects() == 1


@pytest.mark.django_db
def test_a_deadline_that_passes_while_the_store_fails(
    user: User, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With on_store_failure="open", too, no view begins after the deadline of its host."""
    failed: list[bool] = []

    def claim(self: ORMStore, ticket: Any) -> Any:
        failed.append(True)
        raise StoreUnavailable

    monkeypatch.setattr(ORMStore, "claim", claim)
    monkeypatch.setattr(
        "django_idempotency.engine.deadlines.remaining", lambda: 0.0 if failed else 5.0
    )
    with deadline(60):
        answer = connect("/open/", user)()
    assert (answer.status_code, failed, effects()) == (500, [True], 0)


@pytest.mark.django_db
def test_inside_a_test_cases_transaction(user: User, connect: Connect) -> None:
    """The claim joins that transaction: retries replay, other bodies are refused, and all ends with
    the test.
    """
    entered.set()
    assert connection.in_atomic_block
    send = connect("/reject/", user)
    assert [send().status_code, send()["Idempotent-Replayed"]] == [201, "true"]
    assert send({"amount": 1}).status_code == 422
    assert (effects(), IdempotencyRecord.objects.count()) == (1, 1)


@pytest.mark.django_db
def test_forgotten_with_the_test() -> None:
    """The other half of the test above, whichever runs first."""
    assert not IdempotencyRecord.objects.exists()


@transactional
def test_a_lost_race_at_settle_is_answered_and_rolled_back(
    user: User, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A settle that is refused inside the guard rolls the writes back and returns 409: nothing is
    half done.
    """
    entered.set()
    monkeypatch.setattr(ORMStore, "commit", lambda self, guard, ticket, settlement: False)
    answer = connect("/reject/", user)()
    assert (answer.status_code, answer["Retry-After"]) == (409, "1")
    assert effects() == 0
