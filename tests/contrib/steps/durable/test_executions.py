"""Durable executions: only the execution that suspended a call resumes it; all other endings are as
usual.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from contextvars import Context
from datetime import timedelta
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
from asgiref.sync import async_to_sync
from django.test import override_settings

from django_idempotency import deadline, idempotent_function, signals
from django_idempotency.contrib.batches import aprocess_batch, process_batch
from django_idempotency.contrib.steps.durable import Execution, execution
from django_idempotency.core.records import Settlement, Status, Ticket
from django_idempotency.engine.deferring import Deferring
from django_idempotency.engine.heartbeat import heartbeat
from django_idempotency.errors import (
    ConfigurationError,
    DeadlinePassed,
    HeldForPerson,
    InProgress,
    RequestMismatch,
    ResponseNotStored,
    StoreUnavailable,
)
from django_idempotency.functions import current_operation
from django_idempotency.functions.takeovers import Takeover
from django_idempotency.instrumentation.observer import Observer
from django_idempotency.runtime.current_step import EXECUTION
from django_idempotency.runtime.registry import stores
from django_idempotency.stores.memory import MemoryStore
from django_idempotency.testing.clock import elapse
from django_idempotency.testing.recording import RecordingStore
from testproject.payments.models import Effect
from tests.functions.helpers import MEMORY, ORM, CardDeclined, Clock, NetworkDown, Runs, of
from tests.stores.helpers import committed

pytestmark = pytest.mark.usefixtures("memory")

EVENTS = (
    "claimed",
    "taken_over",
    "resumed",
    "busy",
    "replayed",
    "suspended",
    "completed",
    "released",
    "deferred",
    "lost",
)


class Suspended(BaseException):
    """The exception with which an engine of durable executions ends an invocation."""


class SuspendedUntil(Suspended):
    """Engines have several of them."""


#: The invocations of one durable execution, and those of another.
ours = partial(execution, "order-17", suspended_by=Suspended)
theirs = partial(execution, "order-18", suspended_by=Suspended)


def steps(*ends: Any) -> Runs:
    """End the first run like this, the second like that, and so on: raise an exception, return
    anything else.
    """
    left = list(ends)

    def work(*_: Any) -> Any:
        end = left.pop(0)
        if isinstance(end, BaseException):
            raise end
        return end

    return Runs(work)


class Asked(list[int]):
    """An `on_takeover` that runs the call again; lists the attempts that it was asked about."""

    def __call__(self, takeover: Takeover) -> Any:
        self.append(takeover.attempt)
        return takeover.run()


def suspend(charge: Callable[..., Any], *arguments: Any) -> None:
    with ours(), pytest.raises(Suspended):
        charge(*arguments)


@pytest.fixture
def events() -> Iterator[list[str]]:
    """Collect the events."""
    events: list[str] = []
    receivers = [
        (getattr(signals, name), lambda *, name=name, **_: events.append(name)) for name in EVENTS
    ]
    for signal, receiver in receivers:
        signal.connect(receiver)
    yield events
    for signal, receiver in receivers:
        signal.disconnect(receiver)


# ----------------------------------------------------------------------------------------- resuming


def test_it_goes_on(guard: Any) -> None:
    """A call resumes as often as needed, as one attempt with the same derived keys; then its result
    is public.
    """
    keys: list[str] = []

    def act(*_: Any) -> Any:
        keys.append(current_operation().derive("charge"))  # type: ignore[union-attr]
        if len(keys) < 4:
            raise SuspendedUntil
        return "charged"

    work = Runs(act)
    charge = guard(work, key="order", key_prefix="charge")
    for _ in range(3):
        suspend(charge, 17)
    with ours():
        assert charge(17) == "charged"
    with theirs():
        assert charge(17) == "charged"
    assert charge(17) == "charged"
    assert work.attempts == [1, 1, 1, 1]
    assert len(set(keys)) == 1


def test_no_other_execution_resumes_it(guard: Any) -> None:
    """Another execution, and a call outside one, find it busy, also with another class of
    exceptions.
    """
    charge = guard(work := steps(Suspended()), key="order", key_prefix="charge")
    suspend(charge, 17)
    for who in (theirs(), execution("order-17/1", suspended_by=Suspended), nullcontext()):
        with who, pytest.raises(InProgress):
            charge(17)
    assert work.count == 1


def test_what_is_reported(guard: Any, events: list[str]) -> None:
    charge = guard(steps(Suspended(), "charged"), key="order", key_prefix="charge")
    suspend(charge, 17)
    with theirs(), pytest.raises(InProgress):
        charge(17)
    with ours():
        charge(17)
        charge(17)
    assert events == ["claimed", "suspended", "busy", "resumed", "completed", "replayed"]


def test_inner_calls_are_not_repeated() -> None:
    """Calls that a suspended call has finished are replayed; those suspended with it resume with
    it.
    """
    booked, shipped = steps("booked"), steps(Suspended(), "shipped")
    book = idempotent_function(key="order", key_prefix="book")(of(booked))
    ship = idempotent_function(key="order", key_prefix="ship")(of(shipped))
    process = idempotent_function(key="order", key_prefix="process")(
        of(lambda order: [book(order), ship(order)])
    )
    suspend(process, 17)
    with ours():
        assert process(17) == ["booked", "shipped"]
    assert (booked.count, shipped.attempts) == (1, [1, 1])


def test_trips(guard: Any) -> None:
    """A suspension costs the same trips as any ending, a resume one more; otherwise an execution
    costs none.
    """
    stores._built["default"] = store = RecordingStore(MemoryStore())
    charge = guard(steps(Suspended(), "charged"), key="order", key_prefix="charge")
    suspend(charge, 17)
    assert store.verbs == ["claim", "settle"]
    with ours():
        charge(17)
    assert store.verbs[2:] == ["claim", "settle", "settle"]
    with ours():
        charge(17)
    assert store.verbs[5:] == ["claim"]


def test_many_invocations_at_once() -> None:
    """If an engine calls twice at once, the function runs once."""
    charge = idempotent_function(key="order", key_prefix="charge")(
        of(work := steps(Suspended(), "charged"))
    )
    suspend(charge, 17)

    def invoke(_: int) -> Any:
        with ours():
            try:
                return charge(17)
            except InProgress:
                return None

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(invoke, range(32)))
    assert set(answers) <= {"charged", None}
    assert "charged" in answers
    assert work.count == 2


# -------------------------------------------------------------------------------- all other endings


def test_another_request_is_a_mismatch(guard: Any) -> None:
    """Another request is a mismatch even for its own execution."""
    charge = guard(
        work := steps(Suspended(), "charged"), key="order", validate="amount", key_prefix="charge"
    )
    suspend(charge, 17, 100)
    with ours():
        with pytest.raises(RequestMismatch):
            charge(17, 200)
        assert charge(17, 100) == "charged"
    assert work.count == 2


def test_a_failure_frees_the_key(guard: Any) -> None:
    """A failure before or after a suspension frees the key; any next call is the next attempt."""
    charge = guard(
        work := steps(Suspended(), NetworkDown(), "charged"), key="order", key_prefix="charge"
    )
    suspend(charge, 17)
    with ours(), pytest.raises(NetworkDown):
        charge(17)
    with theirs():
        assert charge(17) == "charged"
    assert work.attempts == [1, 1, 2]


def test_a_failure_that_is_held(guard: Any, clock: Clock) -> None:
    """`on_failure="hold"` also blocks its own execution."""
    work = steps(Suspended(), NetworkDown(), "charged")
    charge = guard(work, key="order", key_prefix="charge", on_failure="hold", lease=30)
    suspend(charge, 17)
    with ours():
        with pytest.raises(NetworkDown):
            charge(17)
        with pytest.raises(InProgress):
            charge(17)
        clock.go(30)
        assert charge(17) == "charged"


def test_kept_exceptions(guard: Any) -> None:
    work = steps(Suspended(), CardDeclined("no money", 51))
    charge = guard(work, key="order", key_prefix="charge", keep_exceptions=CardDeclined)
    suspend(charge, 17)
    for who in (ours(), theirs()):
        with who, pytest.raises(CardDeclined, match="no money"):
            charge(17)
    assert work.count == 2


def test_a_result_that_cannot_be_stored(guard: Any) -> None:
    """The result is returned, and the work is not run again for that reason."""
    result = object()
    charge = guard(steps(Suspended(), result), key="order", key_prefix="charge")
    suspend(charge, 17)
    with ours():
        assert charge(17) is result
        with pytest.raises(ResponseNotStored):
            charge(17)


@pytest.mark.parametrize("cut", [KeyboardInterrupt, SystemExit])
def test_what_is_not_a_suspension(guard: Any, clock: Clock, cut: type[BaseException]) -> None:
    """Another exception leaves the call to the lease: its progress is unknown, so the hook is
    asked.
    """
    asked = Asked()
    work = steps(Suspended(), cut(), Suspended(), "charged")
    charge = guard(work, key="order", key_prefix="charge", on_takeover=asked, lease=30)
    suspend(charge, 17)
    with ours(), pytest.raises(cut):
        charge(17)
    with ours(), pytest.raises(InProgress):
        charge(17)
    clock.go(30)
    suspend(charge, 17)  # taken over
    with ours():
        assert charge(17) == "charged"  # resumed, so the hook is not asked
    assert asked == [2]
    assert work.attempts == [1, 1, 2, 2]


def test_without_suspending_nothing_is_resumed(guard: Any, clock: Clock) -> None:
    """After a kill the call is taken over when its lease ends, even by its own execution."""
    charge = guard(
        work := steps(SystemExit(), "charged"), key="order", key_prefix="charge", lease=30
    )
    with ours(), pytest.raises(SystemExit):
        charge(17)
    with ours(), pytest.raises(InProgress):
        charge(17)
    clock.go(30)
    with ours():
        assert charge(17) == "charged"
    assert work.attempts == [1, 2]


def test_a_suspension_while_it_is_asked(guard: Any, clock: Clock) -> None:
    """A suspension inside the hook decides nothing: after the lease it is asked again."""
    asked: list[int] = []

    def ask(takeover: Takeover) -> Any:
        asked.append(takeover.attempt)
        if len(asked) == 1:
            raise Suspended
        return takeover.hold()

    charge = guard(
        work := steps(SystemExit()), key="order", key_prefix="charge", on_takeover=ask, lease=30
    )
    with ours(), pytest.raises(SystemExit):
        charge(17)
    clock.go(30)
    suspend(charge, 17)
    with ours(), pytest.raises(InProgress):
        charge(17)
    clock.go(30)
    for _ in range(2):
        with ours(), pytest.raises(HeldForPerson):
            charge(17)
    assert (asked, work.count) == ([2, 3], 1)


# ---------------------------------------------------------------------------------------- durations


def test_how_long_it_may_sleep(guard: Any, clock: Clock) -> None:
    """After `resumes_within` the call counts as crashed, even for its own execution."""
    charge = guard(
        work := steps(Suspended(), "charged"), key="order", key_prefix="charge", expires_after=60
    )
    with (
        execution("order-17", suspended_by=Suspended, resumes_within=timedelta(days=3)),
        pytest.raises(Suspended),
    ):
        charge(17)
    clock.go(3 * 86400 - 1)
    with pytest.raises(InProgress):
        charge(17)
    clock.go(1)
    with ours():
        assert charge(17) == "charged"
    assert work.attempts == [1, 2]


def test_a_sleep_that_outlasts_what_is_remembered(guard: Any, clock: Clock) -> None:
    """A suspension longer than the retention is not forgotten, but counts as crashed, so the hook
    is asked.
    """
    asked = Asked()
    charge = guard(
        steps(Suspended(), "charged"),
        key="order",
        key_prefix="charge",
        expires_after=1000,
        on_takeover=asked,
    )
    suspend(charge, 17)
    clock.go(1000)
    with theirs():
        assert charge(17) == "charged"
    assert asked == [2]


def test_as_long_as_it_is_remembered(guard: Any, clock: Clock) -> None:
    """Default: the call's `expires_after`, from each suspension; the result is kept as long from
    its last resume.
    """
    work = steps(Suspended(), Suspended(), "charged")
    charge = guard(work, key="order", key_prefix="charge", expires_after=1000)
    for _ in range(2):
        suspend(charge, 17)
        clock.go(900)
    with ours():
        assert charge(17) == "charged"
    clock.go(900)
    assert charge(17) == "charged"
    assert work.attempts == [1, 1, 1]


def test_the_heartbeat(guard: Any) -> None:
    """The heartbeat renews a running call, resumed or not, but not a suspended one, nor one with a
    deadline.
    """
    watched: list[bool] = []
    seen: list[Any] = []
    ends = iter([Suspended(), Suspended(), None])

    def is_watched(operation: Any) -> bool:
        # Or that of an abandoned operation with the same id.
        lease = heartbeat._watched.get(id(operation))
        return lease is not None and lease() is operation

    def act(*_: Any) -> None:
        seen.append(current_operation()._operation)  # type: ignore[union-attr]
        watched.append(is_watched(seen[-1]))
        if (end := next(ends)) is not None:
            raise end

    charge = guard(act, key="order", key_prefix="charge")
    suspend(charge, 17)
    assert not is_watched(seen[-1])
    with deadline(60):
        suspend(charge, 17)
    with ours():
        charge(17)
    assert watched == [True, False, True]


def test_under_a_deadline(guard: Any, clock: Clock) -> None:
    """The lease of a resumed call ends with its host; that of a suspended call does not."""
    charge = guard(
        work := steps(Suspended(), SystemExit(), "charged"), key="order", key_prefix="charge"
    )
    with deadline(10):
        suspend(charge, 17)
    clock.go(1000)
    with deadline(10), ours(), pytest.raises(SystemExit):
        charge(17)
    clock.go(10)
    with ours():
        assert charge(17) == "charged"
    assert work.attempts == [1, 1, 2]


# -------------------------------------------------------------------- what is begun and not resumed


def test_a_deadline_that_passes_meanwhile(guard: Any) -> None:
    """If the deadline passes, nothing has run, and the record still belongs to the execution."""
    charge = guard(work := steps(Suspended(), "charged"), key="order", key_prefix="charge")
    suspend(charge, 17)
    with (
        ours(),
        deadline(60),
        patch("django_idempotency.engine.deadlines.remaining", side_effect=[60.0, 0.0]),
        pytest.raises(DeadlinePassed),
    ):
        charge(17)
    with theirs(), pytest.raises(InProgress):
        charge(17)
    with ours():
        assert charge(17) == "charged"
    assert work.attempts == [1, 1]


def test_an_observer_that_fails(guard: Any) -> None:
    """If an observer fails, nothing has run, and the record still belongs to the execution."""
    charge = guard(work := steps(Suspended(), "charged"), key="order", key_prefix="charge")
    suspend(charge, 17)

    def tell(self: Observer, event: str, *_: Any) -> None:
        if event == "resumed":
            raise MemoryError

    with patch.object(Observer, "__call__", tell), ours(), pytest.raises(MemoryError):
        charge(17)
    with theirs(), pytest.raises(InProgress):
        charge(17)
    with ours():
        assert charge(17) == "charged"
    assert work.attempts == [1, 1]


@pytest.mark.parametrize("verb", ["claim", "settle"])
def test_a_cancelled_one(verb: str) -> None:
    """A cancellation before the work leaves the record to its execution, at every step."""
    runs: list[int] = []

    @idempotent_function(key="order", key_prefix="charge")
    async def charge(order: int) -> str:
        runs.append(order)
        if len(runs) == 1:
            raise Suspended
        return "charged"

    suspend(async_to_sync(charge), 17)

    async def cancelled() -> None:
        task = asyncio.current_task()
        assert task is not None
        with ours(), cancelling(verb, asyncio.get_running_loop(), task):
            await charge(17)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    assert runs == [17]
    with pytest.raises(InProgress):
        async_to_sync(charge)(17)
    with ours():
        assert async_to_sync(charge)(17) == "charged"


@contextmanager
def cancelling(
    verb: str, loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]
) -> Iterator[None]:
    """Cancel a task when its store receives this verb."""
    store = stores["default"]
    given = getattr(store, verb)

    def asked(*arguments: Any) -> Any:
        loop.call_soon_threadsafe(task.cancel)
        return given(*arguments)

    with patch.object(store, verb, asked):
        yield


# -------------------------------------------------------------------- a store that does not respond


class Faulty(MemoryStore):
    """Responds to this many settles with an error, before or after carrying them out."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.clock = clock
        self.faults: list[bool] = []

    def settle(self, ticket: Ticket, settlement: Settlement) -> bool:
        done = self.faults.pop(0) if self.faults else None
        answer = done is not False and super().settle(ticket, settlement)
        if done is not None:
            raise StoreUnavailable
        return answer


@pytest.fixture
def faulty() -> Faulty:
    stores._built["default"] = store = Faulty(Clock())
    return store


@pytest.mark.parametrize("done", [False, True])
def test_a_response_lost_during_suspension(
    guard: Any, faulty: Faulty, events: list[str], done: bool
) -> None:
    """The suspension is retried, and succeeds."""
    charge = guard(
        work := steps(Suspended(), "charged"), key="order", key_prefix="charge", lease=30
    )
    faulty.faults = [done]
    suspend(charge, 17)
    assert events == ["claimed", "suspended"]
    faulty.clock.go(3600)
    with theirs(), pytest.raises(InProgress):
        charge(17)
    with ours():
        assert charge(17) == "charged"
    assert work.attempts == [1, 1]


def test_a_store_that_stays_away(
    guard: Any,
    faulty: Faulty,
    events: list[str],
    deferring: Deferring,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The engine still gets its exception; after the lease the record is taken over as crashed."""
    monkeypatch.setattr("django_idempotency.engine.waiting.SETTLE_PATIENCE", 0)
    charge = guard(
        work := steps(Suspended(), "charged"), key="order", key_prefix="charge", lease=30
    )
    faulty.faults = [False] * 9
    suspend(charge, 17)
    assert events == ["claimed", "deferred"]
    with ours(), pytest.raises(InProgress):
        charge(17)
    faulty.clock.go(30)
    faulty.faults = []
    with theirs():
        assert charge(17) == "charged"
    assert work.attempts == [1, 2]


def test_a_suspension_after_the_lease_was_lost(
    guard: Any, faulty: Faulty, events: list[str]
) -> None:
    """A late suspension changes nothing that another owns."""

    def act(*_: Any) -> str:
        if faulty.clock.now == Clock().now:
            faulty.clock.go(30)
            assert Context().run(elsewhere) == "theirs"
            raise Suspended
        return "ours"

    def elsewhere() -> Any:
        with theirs():
            return guard(lambda *_: "theirs", key="order", key_prefix="charge")(17)

    charge = idempotent_function(key="order", key_prefix="charge", lease=30)(of(act))
    suspend(charge, 17)
    assert events == ["claimed", "taken_over", "completed", "lost"]
    with ours():
        assert charge(17) == "theirs"


@pytest.mark.parametrize("done", [False, True])
def test_a_response_lost_during_resumption(
    guard: Any, faulty: Faulty, events: list[str], done: bool
) -> None:
    """The resume is retried, and the call continues."""
    charge = guard(
        work := steps(Suspended(), "charged"), key="order", key_prefix="charge", lease=30
    )
    suspend(charge, 17)
    faulty.faults = [done]
    with ours():
        assert charge(17) == "charged"
    assert events == ["claimed", "suspended", "resumed", "completed"]
    assert work.attempts == [1, 1]


@pytest.mark.parametrize("done", [False, True])
def test_a_store_that_is_away_as_it_wakes_up(guard: Any, faulty: Faulty, done: bool) -> None:
    """Nothing has run.

    The record is still suspended, or ours under an unknown token until its lease ends.
    """
    charge = guard(
        work := steps(Suspended(), "charged"), key="order", key_prefix="charge", lease=30
    )
    suspend(charge, 17)
    faulty.faults = [done, False]
    with ours(), pytest.raises(StoreUnavailable):
        charge(17)
    with theirs(), pytest.raises(InProgress):
        charge(17)
    if done:
        faulty.clock.go(30)
    with ours():
        assert charge(17) == "charged"
    assert work.attempts == [1, 1 + done]


@pytest.mark.parametrize("done", [False, True])
def test_open_does_not_run_beside_a_suspended_call(guard: Any, faulty: Faulty, done: bool) -> None:
    """`on_store_failure="open"` does not apply: the store has just reported that this call is
    suspended.
    """
    charge = guard(
        work := steps(Suspended(), "charged"),
        key="order",
        key_prefix="charge",
        lease=30,
        on_store_failure="open",
    )
    suspend(charge, 17)
    faulty.faults = [done, False]
    with ours(), pytest.raises(StoreUnavailable):
        charge(17)
    assert work.count == 1


# ------------------------------------------------------------------------------------------ by hand


def test_forgetting(guard: Any) -> None:
    """Its own execution may forget a call that will not be resumed; for others it is running."""
    charge = guard(work := steps(Suspended(), "charged"), key="order", key_prefix="charge")
    suspend(charge, 17)
    for who in (theirs(), nullcontext()):
        with who, pytest.raises(InProgress):
            charge.idempotency.forget(17)
    with ours():
        assert charge.idempotency.forget(17) is True
        assert charge.idempotency.forget(17) is False
    assert charge(17) == "charged"
    assert work.attempts == [1, 1]


def test_forgetting_what_runs(guard: Any) -> None:
    """A running call cannot be forgotten, even inside its execution."""
    refused: list[type[Exception]] = []

    def act(*_: Any) -> None:
        try:
            charge.idempotency.forget(17)
        except InProgress as error:
            refused.append(type(error))

    charge = guard(act, key="order", key_prefix="charge")
    with ours():
        charge(17)
    assert refused == [InProgress]


# ------------------------------------------------------------------------------------------ batches


class Waits(Exception):
    """An engine's exception class that is an ordinary exception."""


@pytest.mark.parametrize("error", [Suspended, Waits])
def test_a_batch(error: type[BaseException]) -> None:
    """A batch is suspended with its record; the records before it are done."""
    work = Runs()
    left = [error()]

    def handle(record: str) -> None:
        if record == "b" and left:
            raise left.pop()
        work(record)

    @idempotent_function(data_keyword_argument="record", key_prefix="handle")
    def handler(record: str) -> None:
        handle(record)

    @idempotent_function(data_keyword_argument="record", key_prefix="ahandle")
    async def ahandler(record: str) -> None:
        handle(record)

    for process in (
        lambda: process_batch(["a", "b", "c"], handler),
        lambda: async_to_sync(aprocess_batch)(["a", "b", "c"], ahandler, concurrency=1),
    ):
        with execution("batch-1", suspended_by=error), pytest.raises(error):
            process()
        with execution("batch-1", suspended_by=error):
            process()
        left.append(error())
    assert work.calls == [("a",), ("b",), ("c",)] * 2
    assert work.count == 6


# ---------------------------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("name", "given", "error", "says"),
    [
        (17, {"suspended_by": Suspended}, TypeError, "name"),
        ("", {"suspended_by": Suspended}, ValueError, "name"),
        ("\ud800", {"suspended_by": Suspended}, ValueError, "name"),
        ("a", {"suspended_by": "Suspended"}, TypeError, "'Suspended'"),
        ("a", {"suspended_by": Suspended()}, TypeError, "classes"),
        ("a", {"suspended_by": (Suspended, int)}, TypeError, "int"),
        ("a", {"suspended_by": ()}, ValueError, "SuspendExecution"),
        ("a", {"suspended_by": BaseException}, ValueError, "SuspendExecution"),
        ("a", {"suspended_by": (Suspended, Exception)}, ValueError, "SuspendExecution"),
        ("a", {"suspended_by": asyncio.CancelledError}, ValueError, "SuspendExecution"),
        ("a", {"suspended_by": KeyboardInterrupt}, ValueError, "SuspendExecution"),
        ("a", {"suspended_by": Suspended, "resumes_within": 0}, ValueError, "resumes_within"),
        (
            "a",
            {"suspended_by": Suspended, "resumes_within": float("nan")},
            ValueError,
            "resumes_within",
        ),
        (
            "a",
            {"suspended_by": Suspended, "resumes_within": timedelta(days=4000)},
            ValueError,
            "ten years",
        ),
    ],
)
def test_what_makes_no_sense(
    name: Any, given: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says), execution(name, **given):
        pass
    assert EXECUTION.get() is None


def test_the_innermost_counts() -> None:
    with ours():
        outer = EXECUTION.get()
        with theirs():
            inner = EXECUTION.get()
        assert EXECUTION.get() is outer
    assert isinstance(outer, Execution)
    assert isinstance(inner, Execution)
    assert (outer.name, inner.name) == ("order-17", "order-18")
    assert EXECUTION.get() is None


def test_threads_and_tasks() -> None:
    """A task inherits the execution, a bare thread does not."""
    with ours():
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(EXECUTION.get).result() is None

        async def task() -> Any:
            return EXECUTION.get()

        async def both() -> tuple[Any, Any]:
            return await asyncio.create_task(task()), await asyncio.to_thread(EXECUTION.get)

        assert asyncio.run(both()) == (EXECUTION.get(), EXECUTION.get())


# ------------------------------------------------------------------------------------------- atomic


@pytest.fixture
def database(db: None) -> Iterator[None]:
    with override_settings(IDEMPOTENCY={"STORES": {"default": ORM, "memory": MEMORY}}):
        yield
    Effect.objects.all().delete()


@idempotent_function(key="order", key_prefix="book", guarantee="atomic")
def book(order: int, end: BaseException | None = None) -> str:
    Effect.objects.create(label="book", attempt=current_operation().attempt)  # type: ignore[union-attr]
    if end is not None:
        raise end
    return "booked"


@committed
def test_atomic(database: None) -> None:
    """A transaction is never suspended: its writes are rolled back, the key is free, and the engine
    gets an error.
    """
    with ours(), pytest.raises(ConfigurationError, match='Type guarantee="lease"') as caught:
        book(17, Suspended())
    assert isinstance(caught.value.__cause__, Suspended)
    assert Effect.objects.count() == 0
    with theirs():
        assert book(17) == "booked"
    assert [effect.attempt for effect in Effect.objects.all()] == [2]


@committed
def test_an_atomic_takeover(database: None) -> None:
    """The hook's writes are rolled back, so it cannot be suspended either; nothing was decided."""

    def look_first(takeover: Takeover) -> Any:
        Effect.objects.create(label="hook")
        raise Suspended

    @idempotent_function(
        key="order", key_prefix="book-twice", guarantee="atomic", on_takeover=look_first
    )
    def book_twice(order: int) -> None:
        raise SystemExit

    with pytest.raises(SystemExit):
        book_twice(17)
    elapse(30)
    with ours(), pytest.raises(ConfigurationError):
        book_twice(17)
    assert Effect.objects.count() == 0


@committed
def test_atomic_inside_a_suspended_call(database: None) -> None:
    """An `atomic` call inside a suspended one is a step that is done once."""
    left = [Suspended()]

    @idempotent_function(key="order", key_prefix="fulfil", guarantee="lease")
    def fulfil(order: int) -> str:
        booked = book(order)
        if left:
            raise left.pop()
        return booked

    suspend(fulfil, 17)
    with ours():
        assert fulfil(17) == "booked"
    assert Effect.objects.count() == 1


@committed
def test_in_a_database(database: None) -> None:
    """The database's clock measures the suspension."""
    charge = idempotent_function(key="order", key_prefix="charge", guarantee="lease", lease=30)(
        of(work := steps(Suspended(), Suspended(), "charged", "charged again"))
    )
    with (
        execution("order-17", suspended_by=Suspended, resumes_within=300),
        pytest.raises(Suspended),
    ):
        charge(17)
    elapse(290)
    suspend(charge, 17)
    known = charge.idempotency.lookup(17)
    assert known is not None
    assert (known.record.status, known.attempt, known.state) == (Status.RUNNING, 1, "running")
    elapse(80000)
    with theirs(), pytest.raises(InProgress):
        charge(17)
    with ours():
        assert charge(17) == "charged"
    assert work.attempts == [1, 1, 1]
