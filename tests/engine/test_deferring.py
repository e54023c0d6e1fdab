"""A failed settle is retried until its lease ends, and never affects the response."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from asgiref.sync import async_to_sync

from django_idempotency.core.conclusions import Ending, SettledState, WorkResult
from django_idempotency.core.records import MISSING, Guarantee, Outcome, Settlement, Status, Ticket
from django_idempotency.core.rules import Busy, Execute, Replay
from django_idempotency.engine import threads
from django_idempotency.engine.deadlines import deadline
from django_idempotency.engine.deferring import HEAVIEST, LONGEST, Deferring
from django_idempotency.engine.heartbeat import Heartbeat
from django_idempotency.engine.lease import LeaseOperation
from django_idempotency.engine.notifying import Notifier
from django_idempotency.engine.operation import Operation
from django_idempotency.errors import StoreUnavailable
from django_idempotency.stores.memory import MemoryStore
from django_idempotency.testing.tickets import make_ticket

from ..faults.plans import until
from ..support.fakes import Listener

START = datetime(2030, 1, 1, tzinfo=timezone.utc)
OUTCOME = Outcome(status=201, body=b"{}")


class Store(MemoryStore):
    """Does not respond while it is `away`; refuses to write for the keys in `refuses`."""

    away = False

    def __init__(self, world: World) -> None:
        super().__init__(clock=lambda: START + timedelta(seconds=world.seconds))
        self.refuses: set[str] = set()
        self.asked: list[str] = []

    def settle(self, ticket: Ticket, settlement: Settlement) -> bool:
        self.asked.append(ticket.key)
        if ticket.key in self.refuses:
            raise ValueError(ticket.key)
        self.answer()
        return super().settle(ticket, settlement)

    def renew(self, tickets: Sequence[Ticket]) -> set[UUID]:
        self.answer()
        return super().renew(tickets)

    def answer(self) -> None:
        if self.away:
            raise StoreUnavailable


class World:
    """One clock for a store, a heartbeat and a queue, neither of which has a thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, deferring: Deferring) -> None:
        self.seconds = 0.0
        self.store = Store(self)
        self.queue = deferring
        self.heartbeat = Heartbeat(clock=lambda: self.seconds)
        monkeypatch.setattr(self.heartbeat, "_start", lambda: None)
        monkeypatch.setattr("django_idempotency.engine.lease.heartbeat", self.heartbeat)
        for module in ("engine.operation", "engine.settling"):
            monkeypatch.setattr(f"django_idempotency.{module}.time", self)
        monkeypatch.setattr("django_idempotency.engine.waiting.SETTLE_PATIENCE", 0.0)

    def monotonic(self) -> float:
        return self.seconds

    def run(self, to: float, *, beats: bool = True) -> None:
        """Let time pass in steps of a second, a beat and a round."""
        while self.seconds < to:
            self.seconds += 1
            if beats:
                self.heartbeat.beat(self.seconds)
            self.queue.attempt(self.seconds)

    def operation(self, **given: Any) -> tuple[LeaseOperation, Listener]:
        ticket = make_ticket(**{"guarantee": Guarantee.LEASE, "lease": 30.0, **given})
        return LeaseOperation(self.store, ticket, listener := Listener()), listener

    def worked(self, **given: Any) -> tuple[LeaseOperation, Listener]:
        """Do the work of a key, and settle it."""
        operation, listener = self.operation(**given)
        assert isinstance(operation.open(), Execute)
        operation.settle(Ending(WorkResult.KEPT, OUTCOME, succeeded=True))
        return operation, listener


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, deferring: Deferring) -> World:
    return World(monkeypatch, deferring)


def test_a_store_that_comes_back(world: World) -> None:
    """The key is busy during the retries, then replays; the work ran once."""
    world.store.away = True
    _, listener = world.worked()
    world.run(to=20)
    assert listener.events == ["claimed", "deferred"]
    assert isinstance(listener.errors[-1], StoreUnavailable)
    assert isinstance(world.operation()[0].open(), Busy)
    world.store.away = False
    world.run(to=21)
    assert listener.events == ["claimed", "deferred", "completed"]
    assert world.operation()[0].open() == Replay(outcome=OUTCOME, attempt=1)
    world.run(to=100)
    assert listener.events[3:] == []


@pytest.mark.parametrize("ends", [99, 115], ids=["before", "after"])
def test_work_that_has_ended_runs_no_longer(
    world: World, monkeypatch: pytest.MonkeyPatch, ends: int
) -> None:
    """While its settle waits its lease is renewed, `longest_run` or not: what has been done is not
    done again.
    """
    operation, listener = world.operation(longest_run=100.0)
    operation.open()
    world.run(to=ends)

    def unavailable(*_: Any) -> bool:
        raise StoreUnavailable

    with monkeypatch.context() as patched:
        patched.setattr(world.store, "settle", unavailable)
        operation.settle(Ending(WorkResult.KEPT, OUTCOME, succeeded=True))
        world.run(to=ends + 26)
        assert isinstance(world.operation()[0].open(), Busy)
    world.run(to=ends + 100)
    assert listener.events == ["claimed", "deferred", "completed"]


def test_a_store_that_comes_back_as_the_settle_is_queued(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread finds no settle whose lease is not kept yet: it would be watched after its end."""
    operation, listener = world.operation()
    operation.open()
    keep = operation.keep_lease

    def keep_late() -> None:
        world.store.away = False
        world.queue.attempt(world.seconds)  # by the thread, between two lines of add()
        keep()

    monkeypatch.setattr(operation, "keep_lease", keep_late)
    world.store.away = True
    operation.settle(Ending(WorkResult.KEPT, OUTCOME, succeeded=True))
    assert operation.deferred
    world.run(to=1)
    assert listener.events == ["claimed", "deferred", "completed"]
    assert (operation.deferred, operation.left_as) == (False, SettledState.COMPLETED)
    assert world.heartbeat.forget(operation) is None


def test_async_work_is_settled_likewise(world: World) -> None:
    """The same thread retries the settle of async work."""
    world.store.away = True
    operation, listener = world.operation()
    async_to_sync(threads.aopen)(operation)
    async_to_sync(threads.in_thread_of)(
        operation.store, operation.settle, Ending(WorkResult.KEPT, OUTCOME, succeeded=True)
    )
    world.store.away = False
    world.run(to=1)
    assert listener.events == ["claimed", "deferred", "completed"]


def test_a_store_that_stays_away(world: World) -> None:
    """A settle is given up when the lease ends, and reported once; then another runs, and the late
    one is void.
    """
    world.store.away = True
    _, listener = world.worked()
    world.run(to=40)
    assert listener.events == ["claimed", "deferred", "lost"]
    asked = len(world.store.asked)
    world.store.away = False
    assert isinstance(world.operation()[0].open(), Execute)
    world.run(to=60)
    assert len(world.store.asked) == asked


def test_a_store_that_refuses_what_is_written(world: World) -> None:
    """A refused settle is given up after one lease, although the heartbeat could go on; others do
    not wait for it.
    """
    world.store.refuses.add("refused")
    _, refused = world.worked(key="refused")
    world.store.away = True
    _, other = world.worked(key="other")
    world.store.away = False
    world.run(to=2)
    assert other.events == ["claimed", "deferred", "completed"]
    world.run(to=29)
    assert refused.events == ["claimed", "deferred"]
    assert isinstance(world.operation(key="refused")[0].open(), Busy)
    world.run(to=30)
    assert refused.events == ["claimed", "deferred", "lost"]
    assert isinstance(refused.errors[-1], ValueError)
    world.run(to=61)
    assert isinstance(world.operation(key="refused")[0].open(), Execute)


def test_the_lease_is_kept_meanwhile(world: World) -> None:
    """The lease is renewed during the retries, so work with half of its lease left gets the full
    time.
    """
    operation, listener = world.operation()
    operation.open()
    world.run(to=9)
    world.store.refuses.add(operation.ticket.key)
    operation.settle(Ending(WorkResult.KEPT, OUTCOME, succeeded=True))
    world.run(to=35)
    assert isinstance(world.operation()[0].open(), Busy)
    world.store.refuses.clear()
    world.run(to=36)
    assert listener.events == ["claimed", "deferred", "completed"]


def test_overtaken_meanwhile(world: World) -> None:
    """A record that was taken over stays with its new owner, and the loss is reported once."""
    world.store.away = True
    _, listener = world.worked()
    world.seconds += 31  # the thread was stopped
    other, others = world.operation()
    assert isinstance(other.open(), Execute)
    world.store.away = False
    world.run(to=32, beats=False)
    assert listener.events == ["claimed", "deferred", "lost"]
    other.settle(Ending(WorkResult.DROPPED, succeeded=True))
    assert others.events == ["taken_over", "released"]


@pytest.mark.parametrize("beats", [False, True])
def test_a_settle_whose_answer_was_lost(
    world: World, monkeypatch: pytest.MonkeyPatch, beats: bool
) -> None:
    """A settle whose response was lost is repeated unchanged; a beat that finds no running record
    reports no loss.
    """

    def swallow(ticket: Ticket, settlement: Settlement) -> bool:
        MemoryStore.settle(world.store, ticket, settlement)
        raise StoreUnavailable

    with monkeypatch.context() as patch:
        patch.setattr(world.store, "settle", swallow)
        _, listener = world.worked()
    if beats:
        world.heartbeat.beat(world.seconds + 11)
    world.run(to=1, beats=False)
    assert listener.events == ["claimed", "deferred", "completed"]
    assert world.operation()[0].open() == Replay(outcome=OUTCOME, attempt=1)


def test_what_is_lost_is_not_tried(world: World) -> None:
    """A settle is not retried after its lease has ended."""
    operation, listener = world.operation()
    operation.open()
    world.store.away = True
    world.seconds += 31
    operation.settle(Ending(WorkResult.KEPT, OUTCOME, succeeded=True))
    assert listener.events == ["claimed", "lost"]


def test_a_store_that_is_away_is_asked_once_a_round(world: World) -> None:
    """A store that is away is tried once per round, however many settles wait: each try may take a
    timeout.
    """
    world.store.away = True
    for number in range(5):
        world.worked(key=f"key-{number}")
    world.store.asked.clear()
    world.run(to=1)
    assert len(world.store.asked) == 1


@pytest.mark.parametrize(
    ("count", "body"),
    [(LONGEST, MISSING), (4, b"x" * (HEAVIEST // 4))],
    ids=["too many", "too large"],
)
def test_the_queue_is_bounded(world: World, count: int, body: Any) -> None:
    """One settle too many is lost at once, as without a queue; there is room again when one is
    written.
    """
    world.store.away = True

    def settled(key: str) -> list[str]:
        operation, listener = world.operation(key=key)
        operation.open()
        operation.settle(Ending(WorkResult.KEPT, Outcome(status=201, body=body), succeeded=True))
        return listener.events

    for number in range(count):
        assert settled(f"key-{number}") == ["claimed", "deferred"]
    assert settled("more") == ["claimed", "lost"]
    world.store.away = False
    world.run(to=1)
    world.store.away = True
    assert settled("again") == ["claimed", "deferred"]


# --------------------------------------------------------------------------------------- the thread


def test_the_thread_writes_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread writes without a call of attempt(), and ends when nothing waits any more."""
    monkeypatch.setattr("django_idempotency.engine.deferring.PAUSE", 0.02)
    monkeypatch.setattr("django_idempotency.engine.waiting.SETTLE_PATIENCE", 0.0)
    queue = Deferring()
    monkeypatch.setattr("django_idempotency.engine.lease.deferring", queue)
    store = MemoryStore()
    operation = LeaseOperation(
        store, make_ticket(guarantee=Guarantee.LEASE, lease=30.0), listener := Listener()
    )
    operation.open()
    with monkeypatch.context() as patch:
        patch.setattr(store, "settle", unavailable)
        operation.settle(Ending(WorkResult.KEPT, OUTCOME, succeeded=True))
    until(lambda: listener.events[-1] == "completed", "it is settled")
    until(lambda: queue._thread is None, "the thread has ended")


def test_a_hanging_receiver(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hanging receiver stops none of 300 settles, takes one thread, and every event is sent once
    it returns.
    """
    monkeypatch.setattr("django_idempotency.engine.deferring.PAUSE", 0.02)
    monkeypatch.setattr("django_idempotency.engine.waiting.SETTLE_PATIENCE", 0.0)
    queue, notifier = Deferring(), Notifier()
    monkeypatch.setattr("django_idempotency.engine.lease.deferring", queue)
    monkeypatch.setattr("django_idempotency.engine.deferring.notifier", notifier)
    before, store = set(threading.enumerate()), MemoryStore()
    called, go_on, completed = threading.Event(), threading.Event(), list[str]()

    def hang(event: str, operation: Operation, error: BaseException | None = None) -> None:
        if event == "completed":
            called.set()
            go_on.wait(60)
            completed.append(operation.ticket.key)

    tickets = [
        make_ticket(key=f"key-{n}", guarantee=Guarantee.LEASE, lease=30.0) for n in range(300)
    ]
    with monkeypatch.context() as patch, deadline(60):  # so that no heartbeat begins
        patch.setattr(store, "settle", unavailable)
        for ticket in tickets:
            operation = LeaseOperation(store, ticket, hang)
            operation.open()
            operation.settle(Ending(WorkResult.KEPT, OUTCOME, succeeded=True))
    try:
        until(lambda: not queue._waiting, "all are settled")
        assert called.wait(10)
        assert {
            record.status for record in map(store.get, (ticket.id for ticket in tickets)) if record
        } == {Status.COMPLETED}
        # Others of the process may begin, too.
        began = [thread.name for thread in set(threading.enumerate()) - before]
        assert began.count("django-idempotency-notifying") == 1
    finally:
        go_on.set()
    notifier.drain(60)
    assert sorted(completed) == sorted(ticket.key for ticket in tickets)


def unavailable(*_: Any) -> bool:
    raise StoreUnavailable


def test_a_thread_that_cannot_start(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the thread cannot start, the settle is lost, as without a queue."""

    def refuse() -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(world.queue, "_start", refuse)
    world.store.away = True
    _, listener = world.worked()
    assert listener.events == ["claimed", "lost"]


def test_a_fork_resets_it(world: World) -> None:
    """A fork empties the queue: it belongs to the parent, which has the thread."""
    world.store.away = True
    world.worked()
    child = os.fork()
    if child == 0:  # pragma: no cover
        os._exit(0 if not world.queue._waiting and world.queue._thread is None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert world.queue._waiting


#: A process that ends while a settle waits. Its store is back after this many tries.
SCRIPT = """
import sys
from django_idempotency.engine import deferring
from django_idempotency.core.records import Guarantee, Outcome
from django_idempotency.core.conclusions import Ending, SettledState, WorkResult
from django_idempotency.engine.lease import LeaseOperation
from django_idempotency.engine.operation import Operation
from django_idempotency.errors import StoreUnavailable
from django_idempotency.stores.memory import MemoryStore
from django_idempotency.testing.tickets import make_ticket

class Away(MemoryStore):
    tries = 0
    def settle(self, ticket, settlement):
        self.tries += 1
        if self.tries < {tries}:
            raise StoreUnavailable
        return super().settle(ticket, settlement)

deferring.PAUSE = 0.05
operation = LeaseOperation(Away(), make_ticket(guarantee=Guarantee.LEASE, lease=30.0), lambda event, *_: print(event, flush=True))
operation.open()
operation.settle(Ending(WorkResult.KEPT, Outcome(status=201), succeeded=True))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("tries", "ended"), [(12, "completed"), (10**6, "lost")])
def test_the_end_of_a_process(tries: int, ended: str) -> None:
    """A process waits a few seconds for what can still be written; the rest is reported as lost."""
    script = SCRIPT.format(tries=tries)
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == ["claimed", "deferred", ended]
    assert done.stderr == ""
