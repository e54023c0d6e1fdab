"""The operation of a call in a durable execution: it resumes the record that its execution has
suspended, and no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from django_idempotency.contrib.steps.durable import DurableOperation, Execution, resumed
from django_idempotency.core import conclusions, rules
from django_idempotency.core.records import Record, Status, Ticket
from django_idempotency.core.rules import TRIES, Busy, Contended, Execute, Race
from django_idempotency.engine import threads
from django_idempotency.errors import LostRace, StoreUnavailable
from django_idempotency.stores.memory import MemoryStore
from django_idempotency.testing.tickets import make_ticket
from tests.engine.test_operation import LEASED, OTHER, SlowStore, cancelled, operation
from tests.support.fakes import FakeStore, Listener, record_of

EXECUTION = Execution("order-17", (KeyboardInterrupt,))


def asleep(attempt: int = 1) -> Record:
    """Return a record that our execution has suspended."""
    record = record_of(LEASED, attempt=attempt)
    return record._replace(owner=EXECUTION.suspending_ticket(record, LEASED).owner)


def executing(
    store: FakeStore, execution: Execution = EXECUTION
) -> tuple[DurableOperation, Listener]:
    listener = Listener()
    return execution.operation(store, LEASED, listener), listener


def test_waking_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next claim finds the record ours as the suspended attempt: it resumes, and is not a
    crash.
    """
    monkeypatch.setattr("django_idempotency.engine.waiting.PAUSE", 0.001)
    monkeypatch.setattr("django_idempotency.engine.waiting.wait_slots.most", lambda: 10)
    monkeypatch.setattr("django_idempotency.contrib.steps.durable.PAUSE", 0.001)
    theirs, ours = record_of(LEASED, owner=OTHER, attempt=2), record_of(LEASED, attempt=2)
    for opening in (
        lambda call: call.open(wait=20),
        lambda call: asyncio.run(threads.aopen(call, wait=20)),
    ):
        settles = [StoreUnavailable(), StoreUnavailable()]
        call, listener = executing(FakeStore(claims=[theirs, asleep(2), ours], settles=settles))
        assert opening(call) == Execute(attempt=2, resumed=True)
        assert (listener.events, settles) == (["resumed"], [])


def test_waking_what_lapses_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the next claim finds the record ours as a later attempt, it was taken over."""
    monkeypatch.setattr("django_idempotency.engine.waiting.PAUSE", 0.001)
    monkeypatch.setattr("django_idempotency.engine.waiting.wait_slots.most", lambda: 10)
    monkeypatch.setattr("django_idempotency.contrib.steps.durable.PAUSE", 0.001)
    claims = [record_of(LEASED, owner=OTHER), asleep(2), record_of(LEASED, attempt=3, taken=True)]
    call, listener = executing(
        FakeStore(claims=claims, settles=[StoreUnavailable(), StoreUnavailable()])
    )
    assert call.open(wait=20) == Execute(attempt=3, takeover=True)
    assert listener.events == ["taken_over"]


@pytest.mark.parametrize(
    ("settled", "tries", "verdict", "event"),
    [(False, 2, Busy, "busy"), (LostRace(), TRIES[Race.CONFLICT], Contended, "contended")],
)
def test_resuming_what_another_has_resumed(
    settled: Any, tries: int, verdict: type, event: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If another call has resumed the record, it is busy; if anything else is in the way, that is
    all that is said.
    """
    monkeypatch.setattr("django_idempotency.core.rules.RACE_PAUSE", 0.0)
    for opening in (lambda call: call.open(), lambda call: asyncio.run(threads.aopen(call))):
        store = FakeStore(claims=[asleep()] * tries, settles=[settled] * tries)
        call, listener = executing(store)
        assert isinstance(opening(call), verdict)
        assert (listener.events, len(store.settled)) == ([event], tries)


def test_a_first_run_after_a_sleep_of_another_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """If another call resumed the record and it was forgotten, the waiting call runs anew and
    resumes nothing.
    """
    monkeypatch.setattr("django_idempotency.engine.waiting.PAUSE", 0.001)
    monkeypatch.setattr("django_idempotency.engine.waiting.wait_slots.most", lambda: 10)
    for opening in (
        lambda call: call.open(wait=20),
        lambda call: asyncio.run(threads.aopen(call, wait=20)),
    ):
        call, listener = executing(
            FakeStore(claims=[asleep(), record_of(LEASED)], settles=[False, False])
        )
        assert opening(call) == Execute(attempt=1)
        assert listener.events == ["claimed"]


def test_a_record_of_another_execution_is_not_resumed() -> None:
    """A record of another execution is not resumed, nor ours by a call outside an execution."""
    other = replace(EXECUTION, name="order-18")
    for opening in (lambda call: call.open(), lambda call: asyncio.run(threads.aopen(call))):
        for make in (partial(executing, execution=other), partial(operation, lease=True)):
            call, listener = make(store := FakeStore(claims=[asleep()]))
            assert isinstance(opening(call), Busy)
            assert (listener.events, store.settled) == (["busy"], [])


def test_a_cancellation_while_it_resumes() -> None:
    """The execution finds its record suspended again, and resumes it on its next call."""
    call, listener = executing(store := SlowStore(claims=[asleep()]))
    assert cancelled(call, store)
    waking, suspended = store.settled
    assert (waking.fence, suspended.fence) == (asleep().owner, LEASED.owner)
    assert (suspended.status, listener.events) == (Status.RUNNING, ["resumed", "suspended"])


# ------------------------------------------------------------------------------------------ by hand


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    store = MemoryStore()
    yield store
    store.close()


def running(store: MemoryStore, key: str = "key-1") -> Ticket:
    ticket = make_ticket(key=key, lease=30, ttl=1000)
    store.claim(ticket)
    return ticket


def stored(store: MemoryStore, ticket: Ticket) -> Record:
    record = store.get(ticket.id)
    assert record is not None
    return record


def sleep(store: MemoryStore, owner: Ticket) -> None:
    record = stored(store, owner)
    ticket = EXECUTION.suspending_ticket(record, owner)
    assert store.settle(ticket, conclusions.handover(record, ticket)) is True


def test_whose_it_is(store: MemoryStore) -> None:
    """Its execution recognises it; no other execution does, and it matches no other record or
    attempt.
    """
    sleep(store, owner := running(store))
    record = stored(store, owner)
    assert EXECUTION.has_suspended(record)
    for other in (
        stored(store, running(store, "other")),
        record._replace(attempt=2),
        record._replace(id=make_ticket(key="other").id),
        record._replace(status=Status.COMPLETED),
    ):
        assert not EXECUTION.has_suspended(other)
    assert not replace(EXECUTION, name="order-18").has_suspended(record)


def test_let_go(store: MemoryStore) -> None:
    """A suspended execution can be ended by hand, by its name; running work and others' records
    cannot.
    """
    other = replace(EXECUTION, name="order-18")
    for forgetting, run in ((False, Execute(attempt=2)), (True, Execute(attempt=1))):
        audited: list[Record] = []

        def let(
            execution: Execution,
            record: UUID,
            audited: list[Record] = audited,
            forgetting: bool = forgetting,
        ) -> bool:
            return execution.release(store, record, audit=audited.append, forgetting=forgetting)

        owner = running(store, f"{forgetting}")
        assert let(EXECUTION, owner.id) is False
        sleep(store, owner)
        assert let(other, owner.id) is let(EXECUTION, make_ticket(key="unknown").id) is False
        seen = stored(store, owner)
        assert rules.leased(seen)
        assert audited == []
        assert let(EXECUTION, owner.id) is True
        assert [(record.status, record.attempt) for record in audited] == [(Status.RUNNING, 1)]
        assert let(EXECUTION, owner.id) is False
        assert resumed(store, make_ticket(key=owner.key), seen) == seen
        again = make_ticket(key=owner.key)
        assert rules.read(store.claim(again), again) == run


def test_let_go_of_what_wakes(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resume in between is not disturbed."""
    sleep(store, owner := running(store))
    awake, look = make_ticket(), store.get

    def looked(record_id: UUID) -> Record | None:
        record = look(record_id)
        assert record is not None
        resumed(store, awake, record)
        return record

    monkeypatch.setattr(store, "get", looked)
    assert EXECUTION.release(store, owner.id, audit=lambda _: None, forgetting=False) is False
    assert store.renew([awake]) == {awake.owner}
