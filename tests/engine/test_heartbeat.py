"""The heartbeat keeps leases alive, and notifies operations that have lost theirs."""

from __future__ import annotations

import gc
import logging
import os
import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest

from django_idempotency.core.conclusions import Ending, WorkResult
from django_idempotency.core.records import Guarantee, Outcome, Status, Ticket
from django_idempotency.core.rules import Busy, Execute, Replay
from django_idempotency.engine import threads
from django_idempotency.engine.heartbeat import Heartbeat, Lease, heartbeat
from django_idempotency.engine.lease import LeaseOperation
from django_idempotency.engine.operation import AtomicOperation, Operation
from django_idempotency.errors import LeaseLost, StoreUnavailable
from django_idempotency.stores.memory import MemoryStore
from django_idempotency.testing.tickets import make_ticket

from ..faults.plans import until

START = datetime(2030, 1, 1, tzinfo=timezone.utc)


class World:
    """A clock that store and heartbeat share, and a heartbeat without a thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0.0
        self.store = MemoryStore(clock=lambda: START + timedelta(seconds=self.seconds))
        self.heartbeat = Heartbeat(clock=lambda: self.seconds)
        self.events: list[str] = []
        monkeypatch.setattr(self.heartbeat, "_start", lambda: None)
        monkeypatch.setattr("django_idempotency.engine.lease.heartbeat", self.heartbeat)

    def operation(self, **given: Any) -> LeaseOperation:
        return LeaseOperation(
            self.store, leased(**given), lambda event, *_: self.events.append(event)
        )

    def run(self, until: float) -> None:
        """Let time pass in steps of a second and a beat."""
        while self.seconds < until:
            self.seconds += 1
            self.heartbeat.beat(self.seconds)


def leased(**given: Any) -> Ticket:
    return make_ticket(**{"guarantee": Guarantee.LEASE, "lease": 30.0, **given})


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


@pytest.fixture
def calls(world: World, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many leases each trip to the store has renewed."""
    counts: list[int] = []
    renew = world.store.renew

    def counted(tickets: Sequence[Ticket]) -> set[UUID]:
        counts.append(len(tickets))
        return renew(tickets)

    monkeypatch.setattr(world.store, "renew", counted)
    return counts


def test_a_slow_owner_is_not_overtaken(world: World) -> None:
    """A slow owner is not overtaken: ten leases later the key is still busy, and the response is
    remembered.
    """
    slow = world.operation()
    assert isinstance(slow.open(), Execute)
    world.run(until=300)
    assert isinstance(world.operation().open(), Busy)
    slow.settle(Ending(WorkResult.KEPT, Outcome(status=201, body=b"late"), succeeded=True))
    assert world.events == ["claimed", "busy", "completed"]
    assert slow.lost is None


def test_a_silent_owner_is_overtaken(world: World) -> None:
    """Without the beat a lease ends; the late owner is notified once, and changes nothing."""
    late = world.operation()
    late.open()
    world.seconds += 31
    assert isinstance(world.operation().open(), Execute)
    world.heartbeat.beat(world.seconds)
    assert isinstance(late.lost, LeaseLost)
    late.settle(Ending(WorkResult.KEPT, Outcome(status=201), succeeded=True))
    assert world.events == ["claimed", "taken_over", "lost"]


def test_work_that_runs_for_too_long(world: World, calls: list[int]) -> None:
    """After its longest run its lease is renewed no more: it ends, the work learns of it, and another
    takes over.
    """
    stuck = world.operation(longest_run=100.0)
    stuck.open()
    world.run(until=119)
    assert isinstance(world.operation().open(), Busy)
    assert (stuck.is_lost(), len(calls)) == (False, 9)  # the last at 90
    world.seconds += 1
    assert stuck.is_lost()
    world.heartbeat.beat(world.seconds)
    assert "LongestRun" in str(stuck.lost)
    assert isinstance(world.operation().open(), Execute)
    stuck.settle(Ending(WorkResult.KEPT, Outcome(status=201), succeeded=True))
    assert world.events == ["claimed", "busy", "lost", "taken_over"]


def test_work_that_ends_in_time(world: World) -> None:
    """Its response is remembered, also when it ends after its last renewal."""
    slow = world.operation(longest_run=100.0)
    slow.open()
    world.run(until=115)
    slow.settle(Ending(WorkResult.KEPT, Outcome(status=201), succeeded=True))
    world.run(until=200)
    assert world.events == ["claimed", "completed"]


def test_a_store_that_does_not_answer_meanwhile(
    world: World, calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work that has run for too long is not renewed either by a beat that was missed before."""
    stuck = world.operation(longest_run=100.0)
    stuck.open()
    world.run(until=89)

    def fails(tickets: Sequence[Ticket]) -> set[UUID]:
        raise StoreUnavailable

    with monkeypatch.context() as patched:
        patched.setattr(world.store, "renew", fails)
        world.run(until=99)
    before = len(calls)
    world.run(until=109)
    assert (world.events, stuck.is_lost()) == (["claimed"], False)  # its lease was renewed at 80
    world.run(until=110)
    assert len(calls) == before
    assert world.events == ["claimed", "lost"]
    assert stuck.is_lost()


def test_what_is_settled_is_forgotten(world: World) -> None:
    """A settled operation is neither renewed nor notified."""
    done = world.operation()
    done.open()
    done.settle(Ending(WorkResult.KEPT, Outcome(status=201), succeeded=True))
    world.run(until=100)
    assert world.events == ["claimed", "completed"]


def test_one_trip_renews_all(world: World, calls: list[int]) -> None:
    """One call renews every lease of a store, whatever its length; none is renewed before a third
    of it has passed.
    """
    operations = [world.operation(key=f"key-{number}") for number in range(5)]
    for operation in operations:
        operation.open()
    world.run(until=9)
    assert calls == []
    world.run(until=10)
    assert calls == [5]


def test_what_is_soon_due_goes_along(world: World, calls: list[int]) -> None:
    """Leases that began one after the other are renewed together, because a beat opens a
    connection.
    """
    operations = [world.operation(key=f"key-{number}") for number in range(5)]
    for operation in operations:
        operation.open()
        world.seconds += 1
    world.run(until=60)
    assert set(calls) == {5}


def test_a_part_of_a_store_does_not_answer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operation whose lease was renewed is not notified of a loss when another part of the store
    fails.
    """
    there, away = world.operation(key="there"), world.operation(key="away")
    for operation in (there, away):
        operation.open()
    renew = world.store.renew

    def half(tickets: Sequence[Ticket]) -> set[UUID]:
        error = StoreUnavailable()
        error.renewed = renew([ticket for ticket in tickets if ticket.owner == there.ticket.owner])
        raise error

    monkeypatch.setattr(world.store, "renew", half)
    world.run(until=100)
    assert there.lost is None
    assert isinstance(away.lost, StoreUnavailable)
    assert isinstance(world.operation(key="there").open(), Busy)


def test_a_store_that_does_not_answer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that does not respond is retried, and the operation is notified when the lease has
    certainly ended.
    """
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
    """An `atomic` call needs no heartbeat: the row lock shows that its owner is alive."""
    from django_idempotency.stores.orm import ORMStore

    guarded = AtomicOperation(ORMStore(), leased(guarantee=Guarantee.ATOMIC), lambda *_: None)
    guarded.open()
    assert id(guarded) not in world.heartbeat._watched.keys() | heartbeat._watched.keys()
    guarded.settle(Ending(WorkResult.FAILED))


@pytest.mark.django_db
def test_a_callers_transaction_has_none(world: World) -> None:
    """A claim in a caller's transaction is not renewed: another connection would not see it, and
    report it as lost.
    """
    from django_idempotency.stores.orm import ORMStore

    world.store = ORMStore()  # type: ignore[assignment]
    joined = world.operation()
    assert isinstance(joined.open(), Execute)
    assert not world.heartbeat._watched


def test_an_abandoned_operation_is_not_kept_alive(world: World) -> None:
    """An abandoned operation does not hold its key permanently."""
    world.operation().open()
    gc.collect()
    world.run(until=31)
    assert not world.heartbeat._watched
    assert isinstance(world.operation().open(), Execute)


def test_an_abandoned_lease_is_not_taken_over(world: World) -> None:
    """Memory is reused, so another operation may get the id of an abandoned one; it does not get
    its lease.
    """
    gone, other = world.operation(), world.operation(key="other")
    gone.open()
    world.heartbeat._watched[id(other)] = world.heartbeat._watched.pop(id(gone))
    world.seconds += 31
    assert not other.is_lost()


def test_who_settles_while_its_loss_is_noted_knows_of_it(world: World) -> None:
    """An operation that settles while its loss is being noted learns of it, although removing a
    lease takes no lock.
    """
    operation = world.operation()
    operation.open()
    noted, asked = threading.Event(), threading.Event()

    def settle() -> None:
        asked.set()
        world.heartbeat.forget(operation)
        noted.set()

    settling = threading.Thread(target=settle)
    with world.heartbeat._lock:
        assert world.heartbeat._watched.pop(id(operation)) is not None
        settling.start()
        assert asked.wait(10)
        assert not noted.wait(0.05)
        operation.lost = LeaseLost()
    assert noted.wait(10)
    settling.join()


@pytest.mark.parametrize(
    "look",
    [lambda beating: beating._due(0.0), lambda beating: beating._pause()],
    ids=["due", "pause"],
)
def test_a_lease_may_be_forgotten_while_others_are_looked_at(
    look: Callable[[Heartbeat], object],
) -> None:
    """Forgetting a lease does not wait for the beating thread, which iterates over a copy."""
    beating = Heartbeat(clock=lambda: 1.0)
    others = [LeaseOperation(MemoryStore(), leased(), lambda *_: None) for _ in range(3)]

    class Looked:
        early, until = 0.0, 1.0

        @property
        def due(self) -> float:
            for operation in others:
                beating.forget(operation)
            return 0.5

    beating._watched[0] = Looked()  # type: ignore[assignment]
    for operation in others:
        lease = Lease(operation)
        lease.begin(0.0, 30.0)
        beating._watched[id(operation)] = lease
    look(beating)
    assert list(beating._watched) == [0]


class Looked(dict[int, Lease]):
    """The watched leases of a heartbeat; adds an operation as soon as the thread has looked."""

    def __init__(self, beating: Heartbeat, comes: Operation) -> None:
        super().__init__()
        self.beating, self.comes = beating, comes
        self.coming: threading.Thread | None = None

    def arrive(self) -> None:
        if self.coming is None:
            self.coming = threading.Thread(target=self.beating.watch, args=(self.comes,))
            self.coming.start()
            until(lambda: id(self.comes) in self, "it has come")

    def copy(self) -> dict[int, Lease]:
        looked = super().copy()
        self.arrive()
        return looked

    def __bool__(self) -> bool:
        found = len(self) > 0
        self.arrive()
        return found


@pytest.mark.parametrize("lease", [30.0, 300.0])
def test_a_lease_that_begins_while_the_thread_renews(lease: float) -> None:
    """A lease that is added without the lock, just after the thread's check, wakes the thread in
    time.
    """
    beating = Heartbeat(clock=lambda: 0.0)
    operation = LeaseOperation(MemoryStore(), leased(lease=lease), lambda *_: None)
    beating._watched = looked = Looked(beating, operation)
    beating._thread = threading.current_thread()
    waits: list[float] = []

    def wait(seconds: float) -> None:
        beating._lock.release()
        assert looked.coming is not None
        looked.coming.join(10)
        beating._lock.acquire()
        waits.append(beating._wakes)
        beating._wakes = -1.0

    beating._changed.wait = wait  # type: ignore[assignment, method-assign]
    assert beating._pause() is True
    assert waits == [min(lease / 3, 60.0)]


def test_a_lease_that_comes_while_the_thread_ends() -> None:
    """The thread continues, since the new lease has seen it."""
    now = [0.0]
    beating = Heartbeat(clock=lambda: now[0])
    operation = LeaseOperation(MemoryStore(), leased(), lambda *_: None)
    beating._thread = thread = threading.current_thread()
    looked = Looked(beating, operation)

    def wait(seconds: float) -> None:
        now[0] = 60.0
        beating._watched = looked

    beating._changed.wait = wait  # type: ignore[assignment, method-assign]
    assert beating._pause() is True
    assert looked.coming is not None
    looked.coming.join(10)
    assert beating._thread is thread


def test_a_lease_that_comes_in_place_of_an_abandoned_one() -> None:
    """A new operation takes the id of an abandoned one, which the thread is about to remove."""
    beating = Heartbeat(clock=lambda: 100.0)
    operation = LeaseOperation(MemoryStore(), leased(), lambda *_: None)
    beating._thread, beating._wakes = threading.current_thread(), 0.0
    coming = threading.Thread(target=beating.watch, args=(operation,))

    class Gone:
        due = 0.0

        def __call__(self) -> None:
            coming.start()
            coming.join(0.1)

    beating._watched[id(operation)] = Gone()  # type: ignore[assignment]
    assert beating._due(100.0) == []
    coming.join(10)
    assert [lease() for lease in beating._watched.values()] == [operation]


def test_a_lease_is_not_taken_out_for_another() -> None:
    """The thread removes only what it has seen, and nothing added since."""
    beating = Heartbeat(clock=lambda: 100.0)
    operation = LeaseOperation(MemoryStore(), leased(), lambda *_: None)
    beating._thread, beating._wakes = threading.current_thread(), 0.0

    class Gone:
        due = 0.0

        def __call__(self) -> None:
            del beating._watched[id(operation)]  # it was forgotten in time
            beating.watch(operation)

    beating._watched[id(operation)] = Gone()  # type: ignore[assignment]
    assert beating._due(100.0) == []
    assert [lease() for lease in beating._watched.values()] == [operation]


def test_a_log_filter_that_raises_stops_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missed beat is noted before it is logged, so a log filter that raises stops nothing."""
    operation = world.operation()
    operation.open()

    def fail(*_: object) -> Any:
        raise KeyError("a filter's own fault")

    def renew(tickets: Any) -> Any:
        raise StoreUnavailable

    logger = logging.getLogger("django_idempotency")
    logger.addFilter(fail)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(world.store, "renew", renew)
            world.run(until=15)
    finally:
        logger.removeFilter(fail)
    world.run(until=100)
    assert isinstance(world.operation().open(), Busy)


def test_a_slow_receiver_holds_up_no_other_lease(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events of lost leases have their own thread, which closes what receivers have opened in
    it.
    """
    notified, go_on, closed = threading.Event(), threading.Event(), threading.Event()

    def page_somebody(event: str, *_: Any, **__: Any) -> None:
        if event == "lost":
            notified.set()
            go_on.wait(10)

    late = LeaseOperation(world.store, leased(key="late"), page_somebody)
    late.open()
    monkeypatch.setattr("django_idempotency.engine.notifying.closing", closed.set)
    monkeypatch.setattr(world.heartbeat, "_thread", threading.current_thread())
    world.store._records.clear()
    world.heartbeat.beat(31)  # returns
    assert notified.wait(10)
    assert not closed.is_set()
    go_on.set()
    assert closed.wait(10)


def test_an_unexpected_error_stops_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread serves all stores, so the unexpected error of one does not end it."""
    operation = world.operation()
    operation.open()

    def renew(tickets: Any) -> Any:
        raise RuntimeError("a driver of another package")

    with monkeypatch.context() as patch:
        patch.setattr(world.store, "renew", renew)
        world.run(until=15)
    world.run(until=100)
    assert operation.lost is None


def test_short_calls_wake_the_thread_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that has finished when the thread wakes does not shorten its sleep, so later calls
    need not wake it.
    """
    slept: list[float] = []
    woken: list[float] = []

    def wait(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            world.seconds += 5
        if len(slept) < 4:
            operation = world.operation(key=f"key-{len(slept)}")
            operation.open()
            operation.settle(Ending(WorkResult.KEPT, Outcome(status=201), succeeded=True))
        else:
            world.seconds += seconds

    monkeypatch.setattr(world.heartbeat._changed, "wait", wait)
    monkeypatch.setattr(world.heartbeat._changed, "notify", lambda: woken.append(world.seconds))
    monkeypatch.setattr(world.heartbeat, "_thread", threading.current_thread())
    assert world.heartbeat._pause()
    assert slept == [60, 10, 5, 5]
    assert woken == [0]


def test_a_thread_without_work_ends(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread ends when no operation has come for long enough."""

    def wait(seconds: float) -> None:
        world.seconds += seconds

    monkeypatch.setattr(world.heartbeat._changed, "wait", wait)
    assert not world.heartbeat._pause()
    assert world.seconds == 60


@pytest.mark.django_db(transaction=True)
def test_the_thread_on_a_real_database() -> None:
    """A lease of half a second outlives two seconds of work, without a call of beat()."""
    from django_idempotency.stores.orm import ORMStore

    store = ORMStore()
    slow = LeaseOperation(store, leased(lease=0.5), lambda *_: None)
    assert isinstance(slow.open(), Execute)
    renewed = threading.Event()
    lease_until = store.claim(leased()).lease_until
    for _ in range(400):
        if store.claim(leased()).lease_until > lease_until + timedelta(seconds=1):
            renewed.set()
            break
        renewed.wait(0.05)
    assert renewed.is_set()
    slow.settle(Ending(WorkResult.KEPT, Outcome(status=201), succeeded=True))
    assert slow.lost is None


@pytest.mark.django_db(transaction=True)
def test_work_that_runs_for_too_long_on_a_real_database(world: World) -> None:
    """Its record is taken over as that of a killed worker, and it settles nothing any more."""
    from django_idempotency.models import IdempotencyRecord
    from django_idempotency.stores.orm import ORMStore

    world.store = ORMStore()  # type: ignore[assignment]
    stuck, second = (world.operation(longest_run=100.0) for _ in range(2))
    stuck.open()
    records = IdempotencyRecord.objects
    world.run(until=99)
    renewed = records.get().lease_until
    world.run(until=130)
    assert records.get().lease_until == renewed
    records.update(lease_until=records.get().created_at)  # as much later
    verdict = second.open()
    assert isinstance(verdict, Execute)
    assert (verdict.takeover, verdict.attempt) == (True, 2)
    stuck.settle(Ending(WorkResult.KEPT, Outcome(status=201, body=b"stuck"), succeeded=True))
    assert records.get().status == Status.RUNNING.value
    second.settle(Ending(WorkResult.KEPT, Outcome(status=201, body=b"second"), succeeded=True))
    replay = world.operation().open()
    assert isinstance(replay, Replay)
    assert replay.outcome.body == b"second"
    assert world.events == ["claimed", "lost", "taken_over", "completed", "replayed"]


def test_a_beat_that_hangs(world: World) -> None:
    """If the beat hangs, the work learns from the clock that its lease has ended."""
    operation = world.operation()
    operation.open()
    world.seconds += 29
    assert not operation.is_lost()
    world.seconds += 1
    assert operation.is_lost()
    operation.settle(Ending(WorkResult.KEPT, Outcome(status=201), succeeded=True))
    assert not operation.is_lost()  # it was not taken over


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_died_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that could not start, or that an exception has ended, is not taken for a living
    one.
    """
    beating = Heartbeat()
    operation = LeaseOperation(MemoryStore(), leased(), lambda *_: None)
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
        beating.watch(LeaseOperation(MemoryStore(), leased(lease=0.01), lambda *_: None))
        kept = LeaseOperation(MemoryStore(), leased(lease=0.01), lambda *_: None)
        beating.watch(kept)
        first.join(10)
    assert not first.is_alive()
    beating.watch(operation)
    assert beating._thread is not None
    assert beating._thread.is_alive()
    beating.forget(operation)


def raising(*_: Any) -> None:
    raise RuntimeError("can't start new thread")


def test_a_receiver_of_a_loss_may_raise(world: World) -> None:
    """If a receiver raises, the leases of the others are still renewed."""

    def tell(event: str, operation: Operation, error: BaseException | None = None) -> None:
        if event == "lost":
            raise SystemExit

    loser = LeaseOperation(world.store, leased(key="loser"), tell)
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
    """The claiming thread decides whether a transaction is open, not the thread of the event
    loop.
    """
    from asgiref.sync import async_to_sync

    from django_idempotency.stores.orm import ORMStore

    world.store = ORMStore()  # type: ignore[assignment]
    joined = world.operation()
    assert isinstance(async_to_sync(threads.aopen)(joined), Execute)
    assert not world.heartbeat._watched


def test_a_fork_resets_it(world: World) -> None:
    """A child neither has the thread nor owns the work of its parent."""
    operation = world.operation()
    operation.open()
    heartbeat.watch(operation)
    child = os.fork()
    if child == 0:  # pragma: no cover
        os._exit(0 if not heartbeat._watched and heartbeat._thread is None else 1)
    heartbeat.forget(operation)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
