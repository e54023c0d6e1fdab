"""The bracket: open a call, run its work, and settle it or let it fail.

    answer = open() ──► there is one, so the work does not run: a replay, or a refusal
       │ None
       work() ── raised ──► fail(error)
       │ returned
       ended(result) ── raised ──► fail(error)
       │
       settle(ending)

`guarded()` is this picture. Where a framework calls the work deep inside of its own, as REST
framework calls a handler, its hooks call `open()`, `finished()` and `fail()` in the same order.

Stores, operations and calls are sync. `aguarded()` is the bracket of async work: it makes the same
calls in threads, and awaits only the work and the time until a busy record is asked for again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from ..core.concurrency import run_to_completion
from ..core.rules import Verdict
from ..errors import IdempotencyError, StoreUnavailable
from ..stores.lending import in_database_thread
from .operation import Operation
from .threads import aopen

T = TypeVar("T")


@dataclass
class Answered(Generic[T]):
    """The answer to a call whose work does not run."""

    value: T


class GuardedCall(Generic[T]):
    """One call under a key: of a view, which returns a response, or of a function."""

    operation: Operation
    #: Seconds to wait for a busy record.
    patience: float
    #: Does before() do anything?
    looks_before = False
    #: Do its steps in async code run in the thread that the ORM needs there?
    thread_sensitive = True

    def open(self) -> Answered[T] | None:
        """Claim the key. Return the answer if the work does not run; `None`: run it.

        Then `finished()` or `fail()` must follow. Raises what keeps the work from running and is no
        answer.
        """
        try:
            if self.looks_before:
                self.before()
            try:
                verdict = self.operation.open(wait=self.patience)
            except StoreUnavailable as error:
                return self.without_store(error)
            return self.opened(verdict)
        except IdempotencyError as error:
            return Answered(self.refused(error))

    def before(self) -> None:
        """Refuse what must not even be claimed."""

    def refused(self, error: IdempotencyError) -> T:
        """Return what the caller gets for one of our errors, or raise it."""
        raise error

    def opened(self, verdict: Verdict) -> Answered[T] | None:
        """Continue after the claim. See open()."""
        raise NotImplementedError

    def without_store(self, error: StoreUnavailable) -> Answered[T] | None:
        """Continue without the store, or raise the error. See open()."""
        raise NotImplementedError

    def ended(self, result: Any) -> Any:
        """Return how the call ends that has returned, with all that is stored of it.

        The transaction of the work is still open.
        """
        raise NotImplementedError

    def settle(self, ending: Any) -> T:
        """Store the end of the call, commit, and return what its caller gets.

        Raises one of our errors if that is not done: `refused()` says what the caller gets then.
        """
        raise NotImplementedError

    def fail(self, error: BaseException) -> T:
        """End a call whose work has raised. Return what its caller gets, or raise."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Give a call back whose work has not begun."""
        self.operation.abandon()

    def close(self) -> None:
        """Leave nothing behind, wherever an interrupt has cut the call.

        After its end it does nothing.
        """
        self.operation.close()


def guarded(call: GuardedCall[T], work: Callable[[], Any]) -> T:
    """Run the work of a call, or return the answer that is known already."""
    try:
        return _bracket(call, work)
    except BaseException:
        call.close()
        raise


# In a function of its own: Python does not protect the first line of a nested `try`.
def _bracket(call: GuardedCall[T], work: Callable[[], Any]) -> T:
    answered = call.open()
    if answered is not None:
        return answered.value
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - fail() raises it again
        return call.fail(error)
    return finished(call, result)


def finished(call: GuardedCall[T], result: Any) -> T:
    """End a call whose work has returned. Return what its caller gets."""
    try:
        ending = call.ended(result)
    except BaseException as error:  # noqa: BLE001 - fail() raises it again
        return call.fail(error)
    try:
        return call.settle(ending)
    except IdempotencyError as error:
        return call.refused(error)


# -------------------------------------------------------------------------------------- async work


async def aguarded(call: GuardedCall[T], work: Callable[[], Awaitable[Any]]) -> T:
    """Run the async work of a call. A cancellation never frees its key early."""
    try:
        return await _abracket(call, work)
    except BaseException:
        call.close()
        raise


async def _abracket(call: GuardedCall[T], work: Callable[[], Awaitable[Any]]) -> T:
    answered = await opened_in_thread(call)
    if answered is not None:
        return answered.value
    try:
        result = await work()
    except GeneratorExit as closed:
        # Nothing can be awaited any more, and a call that is cut writes nothing.
        return call.fail(closed)
    except BaseException as error:  # noqa: BLE001 - fail() raises it again
        return await failed_in_thread(call, error)
    return await finished_in_thread(call, result)


async def finished_in_thread(call: GuardedCall[T], result: Any) -> T:
    """See finished(). A cancellation is raised after the end of the call."""
    return cast("T", await _to_its_end(call, finished, call, result))


async def failed_in_thread(call: GuardedCall[T], error: BaseException) -> T:
    """See GuardedCall.fail(). A cancellation is raised after the end of the call."""
    return cast("T", await _to_its_end(call, call.fail, error))


async def opened_in_thread(call: GuardedCall[T]) -> Answered[T] | None:
    """Open a call in a thread. No thread waits for a busy record.

    A call that is cancelled meanwhile is abandoned.
    """
    opening = _Opening(call)
    try:
        if call.patience <= 0:
            answered: Answered[T] | None = await _to_its_end(call, opening.run)
            return answered
        return await _opened_in_turn(call)
    except GeneratorExit:
        call.close()
        opening.leave()
        raise
    except BaseException:
        if _is_open(call):
            await _to_its_end(call, call.abandon)
        raise


class _Opening(Generic[T]):
    """Opens a call, and abandons it if the coroutine that waits for it was closed meanwhile.

    Of the two that meet, the second one does: the thread that opens it, or who closes.
    """

    def __init__(self, call: GuardedCall[T]) -> None:
        self._call = call
        self._arrived: deque[bool] = deque()
        #: Who takes it abandons the call: both may find that they are the second.
        self._turn = deque([None])

    def run(self) -> Answered[T] | None:
        is_open = True
        try:
            answered = self._call.open()
            is_open = answered is None
            return answered
        finally:
            self._meet(is_open=is_open)

    def leave(self) -> None:
        self._meet(is_open=True)

    def _meet(self, *, is_open: bool) -> None:
        self._arrived.append(is_open)
        if len(self._arrived) > 1 and is_open and _is_open(self._call):
            with suppress(IndexError):
                self._turn.pop()
                self._call.abandon()


async def _opened_in_turn(call: GuardedCall[T]) -> Answered[T] | None:
    """Open a call that may wait for a busy record. See GuardedCall.open()."""
    try:
        if call.looks_before:
            await _to_its_end(call, call.before)
        try:
            verdict = await aopen(call.operation, call.patience)
        except StoreUnavailable as error:
            return cast("Answered[T] | None", await _to_its_end(call, call.without_store, error))
        return cast("Answered[T] | None", await _to_its_end(call, call.opened, verdict))
    except IdempotencyError as error:
        return Answered(await _to_its_end(call, call.refused, error))


def _is_open(call: GuardedCall[Any]) -> bool:
    """May the work of a call begin, and has it not been settled?"""
    operation = call.operation
    return operation.run is not None and operation.left_as is None and not operation.deferred


async def _to_its_end(call: GuardedCall[Any], step: Callable[..., Any], *given: Any) -> Any:
    """Make a step of a call in a thread. A cancellation is raised after its end."""
    made = in_database_thread(_made, step, given, thread_sensitive=call.thread_sensitive)
    value, raised = await run_to_completion(made)
    if raised is not None:
        raise raised
    return value


def _made(step: Callable[..., Any], given: tuple[Any, ...]) -> tuple[Any, BaseException | None]:
    """Return what a step returns, and what it raises: a SystemExit that a thread's task raises
    would end the event loop.
    """
    try:
        return step(*given), None
    except BaseException as raised:  # noqa: BLE001 - raised again, see above
        return None, raised
