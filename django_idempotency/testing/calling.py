"""Makes many calls at one moment, and records the guard events of each; a request is sent as fresh
copies of itself.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any
from uuid import UUID

from asgiref.sync import async_to_sync
from django.core.handlers.asgi import ASGIRequest
from django.core.handlers.base import BaseHandler
from django.core.handlers.wsgi import WSGIRequest
from django.core.signals import request_finished
from django.db import close_old_connections, connections
from django.dispatch import Signal
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from .. import signals
from ..core.records import MISSING, Guarantee
from ..core.statuses import HeaderStatus
from ..engine.operation import Operation
from ..errors import InProgress, LostRace
from ..http.exchange import HEADER

#: Seconds before a busy call is retried: the first pause, and the longest.
PAUSE = 0.01
LONGEST_PAUSE = 0.25

_NAMES = {signal: name for name, signal in vars(signals).items() if isinstance(signal, Signal)}
EVENTS = tuple(_NAMES.values())
#: The call that this thread or task makes. Events of other calls are not recorded for it.
_calling: ContextVar[ConcurrentCall | None] = ContextVar("django_idempotency_call", default=None)


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a guard."""

    name: str
    record: UUID
    guarantee: Guarantee


@dataclass(frozen=True, slots=True)
class CallResult:
    """What must be equal for all calls: status and body of a response, or type and value of
    anything else.
    """

    kind: type[Any]
    value: Any
    status: int | None = None
    #: Is it marked as a replay?
    replayed: bool = field(default=False, compare=False)
    #: Does it say that the first request still runs, or that others were in the way?
    busy: bool = field(default=False, compare=False)

    @classmethod
    def of(cls, given: Any) -> CallResult:
        """Read a result: a response from Django or from an HTTP client, or any other value."""
        if not hasattr(given, "status_code"):
            return cls(type(given), given)
        body = b"".join(given) if getattr(given, "streaming", False) else bytes(given.content)
        said = given.headers.get(HEADER)
        replayed = said == HeaderStatus.REPLAYED.value
        contended = given.status_code == LostRace.status and f'"{LostRace.code}"'.encode() in body
        busy = contended or said == HeaderStatus.IN_PROGRESS.value
        return cls(bytes, body, given.status_code, replayed, busy)

    @classmethod
    def raised(cls, error: BaseException) -> CallResult:
        """Make a result from an exception."""
        return cls(type(error), error.args)

    def __str__(self) -> str:
        shown = (
            repr(self.value)
            if self.status is None
            else f"{self.status} {self.value.decode(errors='replace')}"
        )
        return shown if len(shown) <= 200 else f"{shown[:200]}…"


@dataclass(slots=True, eq=False)
class ConcurrentCall:
    """One call, repeated while another call is running."""

    number: int
    events: list[Event] = field(default_factory=list)
    result: Any = MISSING
    answer: CallResult | None = None
    error: BaseException | None = None
    #: Was another call still running, or in the way, at the last try?
    busy: bool = True

    def make(self, act: Callable[[], Any], deadline: float) -> None:
        """Make the call in this thread."""
        for pause in self._pauses(deadline):
            time.sleep(pause)
            with self._trying():
                self.result = _awaited(act())

    async def amake(self, act: Callable[[], Awaitable[Any]], deadline: float) -> None:
        """See make(). Makes the call in this task."""
        for pause in self._pauses(deadline):
            await asyncio.sleep(pause)
            with self._trying():
                self.result = await act()

    def _pauses(self, deadline: float) -> Iterator[float]:
        """Yield the pause before each try (seconds), until the deadline."""
        pause = PAUSE
        yield 0.0
        while self.busy and time.monotonic() < deadline:
            yield pause
            pause = min(pause * 2, LONGEST_PAUSE)

    @contextmanager
    def _trying(self) -> Iterator[None]:
        before = len(self.events)
        token = _calling.set(self)
        self.answer = self.error = None
        try:
            yield
            self.answer = CallResult.of(self.result)
        except BaseException as error:  # noqa: BLE001 - reported with the other results
            self.error = error
        finally:
            _calling.reset(token)
            self.busy = self._was_busy(self.events[before:])

    def _was_busy(self, said: list[Event]) -> bool:
        if self.error is not None:
            return isinstance(self.error, (InProgress, LostRace))
        if said and said[-1].name in {"busy", "contended"}:
            return True
        # A server in another process sends no events here.
        return self.answer is not None and self.answer.busy


def refuse_transaction(*, who: str, otherwise: str = "") -> None:
    """Raise `RuntimeError` inside a transaction of the test, into which other threads and processes
    cannot look.
    """
    if inside := [
        each.alias for each in connections.all(initialized_only=True) if each.in_atomic_block
    ]:
        raise RuntimeError(
            f"This test runs in a transaction on {', '.join(map(repr, inside))}, into "
            f"which other {who} cannot look. "
            "Type @pytest.mark.django_db(transaction=True), or make the class a "
            f"TransactionTestCase.{otherwise}"
        )


def refused_database(*, who: str) -> str:
    """Return why others cannot use a database that this thread uses; "": they can."""
    used: Any = connections.all(initialized_only=True)
    if any(each.vendor == "sqlite" and each.is_in_memory_db() for each in used):
        return (
            f'{who} cannot share a SQLite database in memory: give its "TEST" a "NAME", of a file.'
        )
    return ""


async def _wait_for(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _awaited(result: Any) -> Any:
    """Return a call's result, awaited if it is a coroutine, as in `lambda: charge(order)`."""
    return async_to_sync(_wait_for)(result) if inspect.isawaitable(result) else result


@contextmanager
def listening() -> Iterator[None]:
    """Record the guards' events, each for the call that it belongs to."""

    def hear(*, signal: Signal, operation: Operation, **_: Any) -> None:
        call = _calling.get()
        if call is not None:
            call.events.append(
                Event(_NAMES[signal], operation.ticket.id, operation.ticket.guarantee)
            )

    for signal in _NAMES:
        signal.connect(hear)
    try:
        yield
    finally:
        for signal in _NAMES:
            signal.disconnect(hear)


def together(act: Callable[[], Any], calls: list[ConcurrentCall], deadline: float) -> None:
    """Make each call in its own thread with its own connections; release all of them at the same
    moment.
    """
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


def gathered(
    act: Callable[[], Awaitable[Any]], calls: list[ConcurrentCall], deadline: float
) -> None:
    """Make each call in its own task, in one event loop."""

    async def gather() -> None:
        tasks = {asyncio.ensure_future(call.amake(act, deadline)): call for call in calls}
        _, hanging = await asyncio.wait(tasks, timeout=max(0.0, deadline - time.monotonic()))
        for task in hanging:
            task.cancel()
        if hanging:
            await asyncio.wait(hanging, timeout=1)
        for task in hanging:
            tasks[task].busy = True  # whatever result its cancellation has led to

    async_to_sync(gather)()


# ----------------------------------------------------------------------------------------- requests


def carried(request: HttpRequest) -> Callable[[], Any]:
    """Return a function that sends a fresh copy of the request each time: a coroutine function for
    an async request.

    The copy keeps the user and the one that DRF was forced to use; the project's middleware sets
    everything else again. Raises `TypeError` for a request that was not made by a RequestFactory.
    """
    if not isinstance(request, (ASGIRequest, WSGIRequest)):
        raise TypeError(
            "A request comes from RequestFactory or AsyncRequestFactory: a bare "
            "HttpRequest has no body."
        )
    body = request.body
    handler = BaseHandler()
    if isinstance(request, ASGIRequest):
        handler.load_middleware(is_async=True)

        async def aanswer() -> HttpResponseBase:
            copy = _as(request, ASGIRequest(request.scope, BytesIO(body)))
            return _closed(await handler.get_response_async(copy))

        return aanswer
    handler.load_middleware()

    def answer() -> HttpResponseBase:
        environ = {**request.environ, "wsgi.input": BytesIO(body), "CONTENT_LENGTH": str(len(body))}
        return _closed(handler.get_response(_as(request, WSGIRequest(environ))))

    return answer


def _as(request: Any, copy: Any) -> Any:
    """Give the copy the original's user.

    Uses private names because there is no public way: AuthenticationMiddleware sets its own user
    unless its cache has one, and DRF's `force_authenticate()` sets a forced user but cannot read
    the original's.
    """
    copy._dont_enforce_csrf_checks = True  # noqa: SLF001 - as the test client does
    user = getattr(request, "user", None)
    if user is not None:
        copy.user = copy._cached_user = copy._acached_user = user  # noqa: SLF001
        if user.is_authenticated and "HTTP_AUTHORIZATION" not in request.META:
            copy._force_auth_user = user  # noqa: SLF001
    for name in ("_force_auth_user", "_force_auth_token"):
        if hasattr(request, name):
            setattr(copy, name, getattr(request, name))
    return copy


def _closed(response: HttpResponseBase) -> HttpResponseBase:
    """Read a stream and close the response, without closing the database connections, which a
    TestCase still needs.
    """
    streamed = b"".join(response) if response.streaming else None
    request_finished.disconnect(close_old_connections)
    try:
        response.close()
    finally:
        request_finished.connect(close_old_connections)
    if streamed is None:
        return response
    return HttpResponse(streamed, status=response.status_code, headers=dict(response.items()))
