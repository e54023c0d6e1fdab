"""The heartbeat keeps leases alive, and tells those who have lost theirs."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest

from django_idempotency.core.records import Guarantee, Outcome, Ticket
from django_idempotency.core.rules import Busy, Ending, Execute
from django_idempotency.engine import Operation
from django_idempotency.errors import LeaseLost, StoreUnavailable
from django_idempotency.heartbeat import Heartbeat, heartbeat
from django_idempotency.stores.memory import MemoryStore
from django_idempotency.testing.tickets import make_ticket

START = datetime(2030, 1, 1, tzinfo=timezone.utc)


class World:
    """A clock that store and heartbeat share, and a heartbeat without a thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0.0
        self.store = MemoryStore(clock=lambda: START + timedelta(seconds=self.seconds))
        self.heartbeat = Heartbeat(clock=lambda: self.seconds)
        self.events: list[str] = []
        monkeypatch.setattr(self.heartbeat, "_start", lambda: None)
        monkeypatch.setattr("django_idempotency.engine.heartbeat", self.heartbeat)

    def operation(self, **given: Any) -> Operation:
        return Operation(self.store, leased(**given), lambda event, *_: self.events.append(event))

    def run(self, until: float) -> None:
        """Let time pass, a second and a beat at a time."""
        while self.seconds < until:
            self.seconds += 1
            self.heartbeat.beat(self.seconds)


def leased(**given: Any) -> Ticket:
    return make_ticket(**{"guarantee": Guarantee.LEASE, "lease": 30.0, **given})


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_a_slow_owner_is_not_overtaken(world: World) -> None:
    """Ten leases later the key is still busy, and the answer is remembered."""
    slow = world.operation()
    assert isinstance(slow.open(), Execute)
    world.run(until=300)
    assert isinstance(world.operation().open(), Busy)
    slow.settle(Ending.KEPT, Outcome(status=201, body=b"late"))
    assert world.events == ["claimed", "busy", "completed"]
    assert slow.lost is None


def test_a_silent_owner_is_overtaken(world: World) -> None:
    """Without the beat a lease ends; the late owner is told once, and changes nothing."""
    late = world.operation()
    late.open()
    world.seconds += 31
    assert isinstance(world.operation().open(), Execute)
    world.heartbeat.beat(world.seconds)
    assert isinstance(late.lost, LeaseLost)
    late.settle(Ending.KEPT, Outcome(status=201))
    assert world.events == ["claimed", "taken_over", "lost"]


def test_what_is_settled_is_forgotten(world: World) -> None:
    """A settled operation is not renewed, and not told anything."""
    done = world.operation()
    done.open()
    done.settle(Ending.KEPT, Outcome(status=201))
    world.run(until=100)
    assert world.events == ["claimed", "completed"]


def test_one_trip_renews_all(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every lease of a store in one call, whatever its length; and none before a third of it has passed."""
    calls: list[int] = []
    renew = world.store.renew

    def counted(tickets: Sequence[Ticket]) -> set[UUID]:
        calls.append(len(tickets))
        return renew(tickets)

    monkeypatch.setattr(world.store, "renew", counted)
    operations = [world.operation(key=f"key-{number}") for number in range(5)]
    for operation in operations:
        operation.open()
    world.run(until=9)
    assert calls == []
    world.run(until=10)
    assert calls == [5]


def test_a_store_that_does_not_answer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked again, and the operation told when the lease has surely ended."""
    operation = world.operation()
    operation.open()

    def renew(tickets: Any) -> Any:
        raise StoreUnavailable

    monkeypatch.setattr(world.store, "renew", renew)
    world.run(until=29)
    assert operation.lost is None
    world.run(until=40)
    assert isinstance(operation.lost, StoreUnavailable)
    assert world.events == ["claimed", "lost"]


@pytest.mark.django_db(transaction=True)
def test_atomic_needs_none(world: World) -> None:
    """There the row lock says that the owner is alive."""
    from django_idempotency.stores.orm import ORMStore

    world.store = ORMStore()  # type: ignore[assignment]
    guarded = world.operation(guarantee=Guarantee.ATOMIC)
    guarded.open()
    assert not world.heartbeat._watched
    guarded.settle(Ending.FAILED)


@pytest.mark.django_db
def test_a_callers_transaction_has_none(world: World) -> None:
    """Another connection would not see the record, and take it for lost."""
    from django_idempotency.stores.orm import ORMStore

    world.store = ORMStore()  # type: ignore[assignment]
    joined = world.operation()
    assert isinstance(joined.open(), Execute)
    assert not world.heartbeat._watched


def test_an_abandoned_operation_is_not_kept_alive(world: World) -> None:
    """Who forgets to settle does not hold the key for ever."""
    world.operation().open()
    gc.collect()
    world.run(until=31)
    assert isinstance(world.operation().open(), Execute)


def test_an_unexpected_error_stops_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread beats for all stores: no error of one may end it."""
    operation = world.operation()
    operation.open()

    def renew(tickets: Any) -> Any:
        raise RuntimeError("a driver of somebody's own")

    with monkeypatch.context() as patch:
        patch.setattr(world.store, "renew", renew)
        world.run(until=15)
    world.run(until=100)
    assert operation.lost is None


@pytest.mark.django_db(transaction=True)
def test_the_thread_on_a_real_database() -> None:
    """A lease of half a second outlives two seconds of work, without anybody calling beat()."""
    from django_idempotency.stores.orm import ORMStore

    store = ORMStore()
    slow = Operation(store, leased(lease=0.5), lambda *_: None)
    assert isinstance(slow.open(), Execute)
    renewed = threading.Event()
    lease_until = store.claim(leased()).lease_until
    for _ in range(400):
        if store.claim(leased()).lease_until > lease_until + timedelta(seconds=1):
            renewed.set()
            break
        renewed.wait(0.05)
    assert renewed.is_set()
    slow.settle(Ending.KEPT, Outcome(status=201))
    assert slow.lost is None


def test_a_beat_that_hangs(world: World) -> None:
    """The work that asks learns from the clock that its lease has ended, though nobody could tell it."""
    operation = world.operation()
    operation.open()
    world.seconds += 29
    assert not operation.is_lost()
    world.seconds += 1
    assert operation.is_lost()
    operation.settle(Ending.KEPT, Outcome(status=201))
    assert not operation.is_lost()  # nobody took it


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_died_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that could not start, or that somebody's exception has ended, is not taken for a living one."""
    beating = Heartbeat()
    operation = Operation(MemoryStore(), leased(), lambda *_: None)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", raising)
        with pytest.raises(RuntimeError):
            beating.watch(operation)
    beating.watch(operation)
    first = beating._thread
    assert first is not None
    beating.forget(operation)
    with monkeypatch.context() as patch:
        patch.setattr(beating, "beat", raising)
        beating.watch(Operation(MemoryStore(), leased(lease=0.01), lambda *_: None))
        kept = Operation(MemoryStore(), leased(lease=0.01), lambda *_: None)
        beating.watch(kept)
        first.join(10)
    assert not first.is_alive()
    beating.watch(operation)
    assert beating._thread is not None
    assert beating._thread.is_alive()
    beating.forget(operation)


def raising(*_: Any) -> None:
    raise RuntimeError("can't start new thread")


def test_whoever_is_told_of_a_loss_may_raise(world: World) -> None:
    """The others' leases are renewed all the same."""

    def tell(event: str, operation: Operation, error: BaseException | None = None) -> None:
        if event == "lost":
            raise SystemExit

    loser = Operation(world.store, leased(key="loser"), tell)
    loser.open()
    world.seconds += 31
    world.operation(key="loser").open()
    other = world.operation(key="other")
    other.open()
    world.run(until=200)
    assert loser.is_lost()
    assert isinstance(world.operation(key="other").open(), Busy)
    assert other.lost is None


@pytest.mark.django_db
def test_an_async_claim_in_a_callers_transaction_has_none(world: World) -> None:
    """Told by the thread that claimed, not by the one of the event loop."""
    from asgiref.sync import async_to_sync

    from django_idempotency.stores.orm import ORMStore

    world.store = ORMStore()  # type: ignore[assignment]
    joined = world.operation()
    assert isinstance(async_to_sync(joined.aopen)(), Execute)
    assert not world.heartbeat._watched


def test_a_fork_begins_anew(world: World) -> None:
    """A child neither has the thread nor owns what its parent runs."""
    operation = world.operation()
    operation.open()
    heartbeat.watch(operation)
    child = os.fork()
    if child == 0:  # pragma: no cover
        os._exit(0 if not heartbeat._watched and heartbeat._thread is None else 1)
    heartbeat.forget(operation)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
