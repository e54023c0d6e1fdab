"""`wait=5` on real databases: on the row's lock if there is one, and never longer than
requested.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from django_idempotency.core.conclusions import Ending, WorkResult
from django_idempotency.core.records import Guarantee, Status
from django_idempotency.core.rules import Busy, Execute, Replay, Verdict
from django_idempotency.engine.operation import AtomicOperation
from django_idempotency.models import IdempotencyRecord
from django_idempotency.stores.orm import ORMStore
from django_idempotency.testing.tickets import make_ticket
from tests.support.combining import KIND

from .helpers import OUTCOME, Call, atomic_ticket, effects, not_sqlite

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def room_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test has few threads, of which a quarter may wait."""
    monkeypatch.setattr("django_idempotency.engine.waiting.wait_slots.most", lambda: 100)


@contextmanager
def first_at_work(ending: WorkResult = WorkResult.KEPT, **given: Any) -> Iterator[threading.Event]:
    """Let another thread hold the record until the event is set."""
    holds, leave = threading.Event(), threading.Event()

    def work() -> None:
        call = Call(atomic_ticket(**{"lease": 1, **given}))
        call.open()
        call.work()
        holds.set()
        leave.wait(20)
        call.settle(ending)
        connections.close_all()

    thread = threading.Thread(target=work)
    thread.start()
    assert holds.wait(20)
    try:
        yield leave
    finally:
        leave.set()
        thread.join(20)


def wait_for(seconds: float, **given: Any) -> Verdict:
    operation = AtomicOperation(ORMStore(), atomic_ticket(**{"lease": 1, **given}), lambda *_: None)
    verdict = operation.open(wait=seconds)
    if isinstance(verdict, Execute):
        operation.settle(Ending(WorkResult.KEPT, OUTCOME, succeeded=True))
    return verdict


def test_a_waiter_gets_the_replay() -> None:
    """A waiter gets the replay as soon as the first call has committed."""
    with first_at_work() as leave:
        threading.Timer(0.6, leave.set).start()
        assert wait_for(10) == Replay(outcome=OUTCOME, attempt=1)
    assert effects() == 1


@not_sqlite
@pytest.mark.skipif(
    KIND == "mysql", reason="No statement of MySQL says how long it waits: it polls"
)
def test_waiting_is_one_statement() -> None:
    """It sends claim, wait and claim: nothing is polled while the first call works."""
    ORMStore().claim(make_ticket(key="warm"))
    with first_at_work() as leave, CaptureQueriesContext(connection) as sent:
        threading.Timer(0.8, leave.set).start()
        assert isinstance(wait_for(10), Replay)
    waits = [
        query["sql"]
        for query in sent
        if "FOR SHARE" in query["sql"] or "LOCK IN SHARE MODE" in query["sql"]
    ]
    claim = 1 if KIND == "postgresql" else 2  # insert and read, in one message or two
    assert (len(waits), len(sent)) == (1, claim + 1 + claim)


@pytest.mark.parametrize("seconds", [0.2, 1.3])
def test_the_end_of_the_wait(seconds: float) -> None:
    """It is busy, not much later than requested, even if the database counts in whole seconds."""
    with first_at_work():
        began = time.monotonic()
        assert isinstance(wait_for(seconds), Busy)
        assert seconds <= time.monotonic() - began < seconds + 2


def test_a_first_that_fails() -> None:
    """The waiter runs as the next attempt, not as a takeover: a lease protects the record from
    rollback to release.
    """
    with first_at_work(WorkResult.FAILED, lease=20) as leave:
        threading.Timer(0.3, leave.set).start()
        assert wait_for(10, lease=20) == Execute(attempt=2)


@not_sqlite
def test_who_waits_does_not_keep_the_first_from_its_release() -> None:
    """The rollback gives a waiter the row's lock for a moment: the release comes after it."""
    call = Call(atomic_ticket(lease=20))
    call.open()
    call.work()
    waiting, shared = (
        threading.Event(),
        "FOR SHARE" if connection.vendor == "postgresql" else "LOCK IN SHARE MODE",
    )

    def hold() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            waiting.set()
            cursor.execute(f"SELECT 1 FROM {IdempotencyRecord._meta.db_table} {shared}")
            time.sleep(0.3)
        connections.close_all()

    waiter = threading.Thread(target=hold)
    waiter.start()
    assert waiting.wait(10)
    time.sleep(0.2)  # it waits
    call.settle(WorkResult.FAILED)
    waiter.join(20)
    assert call.listener.events == ["claimed", "released"]
    assert IdempotencyRecord.objects.get().status == Status.FREE


def test_another_request_does_not_wait() -> None:
    """The first call's response is not for it."""
    with first_at_work():
        began = time.monotonic()
        verdict = wait_for(10, body=b"other")
        assert not isinstance(verdict, (Busy, Execute, Replay))
        assert time.monotonic() - began < 5


def test_nothing_to_wait_for() -> None:
    """A lease or a missing row has no lock, so the store returns at once."""
    store, ticket = ORMStore(), make_ticket(guarantee=Guarantee.LEASE)
    began = time.monotonic()
    store.wait(ticket, seconds=30)
    store.claim(ticket)
    store.wait(ticket, seconds=30)
    store.wait(atomic_ticket(key="unknown"), seconds=30)
    assert time.monotonic() - began < 10
