"""How long calls wait, and how many may: threads, coroutines, and the retries of a settle."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest

from django_idempotency.core.conclusions import Ending, WorkResult
from django_idempotency.core.records import Guarantee, Outcome, Record, Settlement, Status, Ticket
from django_idempotency.core.rules import Busy, Execute, Replay
from django_idempotency.engine import operation, settling, threads, waiting
from django_idempotency.engine.deferring import Deferring
from django_idempotency.engine.lease import LeaseOperation
from django_idempotency.engine.operation import AtomicOperation
from django_idempotency.errors import StoreUnavailable
from django_idempotency.testing.tickets import make_ticket

from ..support.fakes import FakeStore, Listener, record_of

LEASED = make_ticket(guarantee=Guarantee.LEASE)
ATOMIC = LEASED._replace(guarantee=Guarantee.ATOMIC)
OUTCOME = Outcome(status=201, body=b"")
THEIRS = record_of(LEASED, owner=UUID(int=7))
DONE = record_of(LEASED, owner=UUID(int=7), status=Status.COMPLETED, outcome=OUTCOME)
REPLAY = Replay(outcome=OUTCOME, attempt=1)


class BusyStore(FakeStore):
    """Another call works under the key until `done` is set. Each thread that waits for it releases
    `waiting`.
    """

    def __init__(self) -> None:
        super().__init__(claims=[])
        self.done = threading.Event()
        self.waiting = threading.Semaphore(0)
        self.error: Exception | None = None

    def claim(self, ticket: Ticket) -> Record:
        self.trace.append("claim")
        return DONE if self.done.is_set() else THEIRS

    def wait(self, ticket: Ticket, *, seconds: float) -> None:
        if self.error is not None:
            raise self.error
        self.waiting.release()
        assert self.done.wait(20)

    def open(self, wait: float = 20.0) -> Any:
        return LeaseOperation(self, LEASED, Listener()).open(wait=wait)


# ------------------------------------------------------------------------------------------ threads


@pytest.mark.parametrize(("alive", "quarter"), [(1, 1), (3, 1), (4, 1), (8, 2), (15, 3)])
def test_a_quarter_of_the_threads_may_wait(
    alive: int, quarter: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quarter of the threads waits, and always one; one more is busy at once.

    Afterwards as many may wait again.
    """
    monkeypatch.setattr(threading, "active_count", lambda: alive)
    for _ in range(2):
        store = BusyStore()
        with ThreadPoolExecutor(quarter + 1) as pool:
            waiting = [pool.submit(store.open) for _ in range(quarter)]
            try:
                for _ in waiting:
                    assert store.waiting.acquire(timeout=20)
                refused = pool.submit(store.open).result(timeout=10)
                assert not store.waiting.acquire(blocking=False)
            finally:
                store.done.set()
            assert [each.result(timeout=20) for each in waiting] == [REPLAY] * quarter
        assert isinstance(refused, Busy)


def test_who_fails_waits_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait that fails frees its slot."""
    monkeypatch.setattr(threading, "active_count", lambda: 4)
    store = BusyStore()
    for _ in range(3):
        store.error = ZeroDivisionError()
        with pytest.raises(ZeroDivisionError):
            store.open()
    store.error = None
    threading.Timer(0.05, store.done.set).start()
    assert store.open() == REPLAY


# --------------------------------------------------------------------------------------- coroutines


def test_coroutines_wait_without_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any number of coroutines waits on one loop, which keeps running: one thread serves them all,
    since it only looks, and is free in between.
    """
    monkeypatch.setattr("django_idempotency.engine.waiting.PAUSE", 0.001)
    store, callers = BusyStore(), 200

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a thread is held")

    async def work() -> None:
        # Each has looked, waited, and looked again.
        while len(store.trace) < 3 * callers:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        store.done.set()

    async def call_all() -> list[Any]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        waiting = [
            threads.aopen(LeaseOperation(store, LEASED, Listener()), wait=20)
            for _ in range(callers)
        ]
        return (await asyncio.gather(*waiting, work()))[:callers]

    monkeypatch.setattr(time, "sleep", refuse)
    monkeypatch.setattr(store, "wait", refuse)
    assert asyncio.run(call_all()) == [REPLAY] * callers


# ------------------------------------------------------------------------------------------ settles


class DeadStore(FakeStore):
    """Claims, but does not settle anything. Each refusal takes `seconds` of the clock."""

    def __init__(self, ticket: Ticket, clock: FakeTime, seconds: float) -> None:
        record = record_of(ticket)
        super().__init__(claims=[record], locks=[record] * 100 if ticket is ATOMIC else None)
        self._clock, self._seconds = clock, seconds

    def settle(self, ticket: Ticket, settlement: Settlement) -> bool:
        super().settle(ticket, settlement)
        self._clock.now += self._seconds
        raise StoreUnavailable


class FakeTime:
    """A clock that only sleeping advances."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def settle(store: DeadStore, listener: Listener) -> None:
    call = LeaseOperation(store, LEASED, listener)
    call.open()
    call.settle(Ending(WorkResult.KEPT, OUTCOME, succeeded=True))


def asettle(store: DeadStore, listener: Listener) -> None:
    async def run() -> None:
        call = LeaseOperation(store, LEASED, listener)
        await threads.aopen(call)
        await threads.in_thread_of(
            call.store, call.settle, Ending(WorkResult.KEPT, OUTCOME, succeeded=True)
        )

    asyncio.run(run())


def release(store: DeadStore, listener: Listener) -> None:
    call = AtomicOperation(store, ATOMIC, listener)
    assert isinstance(call.open(), Execute)
    call.settle(Ending(WorkResult.FAILED))


@pytest.mark.parametrize("act", [settle, asettle, release])
@pytest.mark.parametrize(
    ("seconds", "asked"),
    [
        (0.0, 7),  # refused at once: at 0.0, 0.1 … 0.6
        (0.25, 2),  # 0.00 to 0.25, 0.35 to 0.60
        (0.5, 2),  # frozen, the default timeout: 0.0 to 0.5, 0.6 to 1.1
        (1.0, 1),
    ],
)
def test_the_bound_of_a_settles_retries(
    act: Any, seconds: float, asked: int, deferring: Deferring, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No try begins after 0.6 s, whatever a try takes; then the result is reported, and the
    response goes out.
    """
    clock, listener = FakeTime(), Listener()
    for module in (operation, settling, waiting):
        monkeypatch.setattr(module, "time", clock)
    store = DeadStore(ATOMIC if act is release else LEASED, clock, seconds)
    act(store, listener)
    assert store.trace.count("settle") == asked
    assert len(clock.slept) == asked - 1
    assert sum(clock.slept) < 0.6 + 1e-9
    assert clock.now < 0.6 + seconds + 1e-9
    assert listener.events == ["claimed", "lost" if act is release else "deferred"]
    assert isinstance(listener.errors[-1], StoreUnavailable)
