"""Many calls of one thing at one moment, each with what the guards said to it. For `asserting`."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from asgiref.sync import async_to_sync
from django.db import connections
from django.dispatch import Signal

from .. import signals
from ..core.records import MISSING, Guarantee
from ..engine.operation import Operation
from ..errors import InProgress
from ..http.responses import REPLAYED

#: Seconds before a busy call is tried again: at first, and at most.
PAUSE, LONGEST_PAUSE = 0.01, 0.25

_NAMES = {signal: name for name, signal in vars(signals).items() if isinstance(signal, Signal)}
EVENTS = tuple(_NAMES.values())
#: The call that this thread, or task, makes. What others do meanwhile is none of its events.
_calling: ContextVar[ConcurrentCall | None] = ContextVar("django_idempotency_call", default=None)


@dataclass(frozen=True, slots=True)
class Event:
    """What a guard said."""

    name: str
    record: UUID
    guarantee: Guarantee


@dataclass(frozen=True, slots=True)
class CallResult:
    """What two calls must have alike: the status and the body of a response, the type and value of all else."""

    kind: type[Any]
    value: Any
    status: int | None = None
    #: Does it say that it is a replay?
    replayed: bool = field(default=False, compare=False)

    @classmethod
    def of(cls, given: Any) -> CallResult:
        """Read an answer: Django's, or one of a client over HTTP."""
        if not hasattr(given, "status_code"):
            return cls(type(given), given)
        body = b"".join(given) if getattr(given, "streaming", False) else bytes(given.content)
        return cls(bytes, body, given.status_code, REPLAYED in given.headers)

    @classmethod
    def raised(cls, error: BaseException) -> CallResult:
        """Take an exception for an answer."""
        return cls(type(error), error.args)

    def __str__(self) -> str:
        shown = repr(self.value) if self.status is None else f"{self.status} {self.value.decode(errors='replace')}"
        return shown if len(shown) <= 200 else f"{shown[:200]}…"


@dataclass(slots=True, eq=False)
class ConcurrentCall:
    """One call, which is made again while its answer is that another one is running."""

    number: int
    events: list[Event] = field(default_factory=list)
    result: Any = MISSING
    answer: CallResult | None = None
    error: BaseException | None = None
    #: Is another one still running, as far as the last try knows?
    busy: bool = True

    def make(self, act: Callable[[], Any], deadline: float) -> None:
        """Call, in this thread."""
        for pause in self._pauses(deadline):
            time.sleep(pause)
            with self._trying():
                self.result = _awaited(act())

    async def amake(self, act: Callable[[], Awaitable[Any]], deadline: float) -> None:
        """See make(): in this task."""
        for pause in self._pauses(deadline):
            await asyncio.sleep(pause)
            with self._trying():
                self.result = await act()

    def _pauses(self, deadline: float) -> Iterator[float]:
        """Yield how long to pause before each try, as long as there is to be another."""
        pause = PAUSE
        yield 0.0
        while self.busy and time.monotonic() < deadline:
            yield pause
            pause = min(pause * 2, LONGEST_PAUSE)

    @contextmanager
    def _trying(self) -> Iterator[None]:
        before, token = len(self.events), _calling.set(self)
        self.answer = self.error = None
        try:
            yield
            self.answer = CallResult.of(self.result)
        except BaseException as error:  # noqa: BLE001 - told with all the others'
            self.error = error
        finally:
            _calling.reset(token)
            self.busy = self._was_busy(self.events[before:])

    def _was_busy(self, said: list[Event]) -> bool:
        if self.error is not None:
            return isinstance(self.error, InProgress)
        if said and said[-1].name == "busy":
            return True
        # A server elsewhere, whose guards are not heard; or one that was overtaken.
        return (
            self.answer is not None
            and self.answer.status == 409
            and f'"{InProgress.code}"'.encode() in self.answer.value
        )


async def _wait_for(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _awaited(result: Any) -> Any:
    """Return what a call returned: a coroutine, perhaps, of `lambda: charge(order)`."""
    return async_to_sync(_wait_for)(result) if inspect.isawaitable(result) else result


@contextmanager
def listening() -> Iterator[None]:
    """Write down what the guards say, each to the call that it was said to."""

    def hear(*, signal: Signal, operation: Operation, **_: Any) -> None:
        if (call := _calling.get()) is not None:
            call.events.append(Event(_NAMES[signal], operation.ticket.id, operation.ticket.guarantee))

    for signal in _NAMES:
        signal.connect(hear)
    try:
        yield
    finally:
        for signal in _NAMES:
            signal.disconnect(hear)


def together(act: Callable[[], Any], calls: list[ConcurrentCall], deadline: float) -> None:
    """Make the calls in as many threads, through as many connections, released at one moment."""
    barrier = threading.Barrier(len(calls))

    def run(call: ConcurrentCall) -> None:
        try:
            barrier.wait()
            call.make(act, deadline)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))


def one_by_one(act: Callable[[], Any], calls: list[ConcurrentCall], deadline: float) -> None:
    """Make the calls one after the other, in this thread."""
    for call in calls:
        call.make(act, deadline)


def gathered(act: Callable[[], Awaitable[Any]], calls: list[ConcurrentCall], deadline: float) -> None:
    """Make the calls in as many tasks of one event loop."""

    async def gather() -> None:
        tasks = {asyncio.ensure_future(call.amake(act, deadline)): call for call in calls}
        _, hanging = await asyncio.wait(tasks, timeout=max(0.0, deadline - time.monotonic()))
        for task in hanging:
            task.cancel()
        if hanging:
            await asyncio.wait(hanging, timeout=1)
        for task in hanging:
            tasks[task].busy = True  # whatever its cancellation has become

    async_to_sync(gather)()
