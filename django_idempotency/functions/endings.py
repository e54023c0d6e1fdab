"""How a call ends: what is stored, and what its caller gets."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime, timezone
from functools import lru_cache
from typing import Any, NamedTuple

from ..core.conclusions import SettledState, WorkResult
from ..core.concurrency.cancellation import run_to_completion
from ..core.failures import failed_with
from ..core.records import Guarantee, Outcome, OutcomeKind, shortened
from ..core.serialization.results import Unstorable, dump_error
from ..errors import (
    ConfigurationError,
    HeldForPerson,
    IdempotencyError,
    OperationHeld,
    OutcomeUnknown,
    StoreUnavailable,
    is_answer,
)
from ..instrumentation.traces import traced
from ..runtime.handle import HELD_FOR
from ..runtime.registry import body_limit
from ..runtime.takeovers import HoldForReview, RunAgain, UseResult
from .call import FunctionCall

logger = logging.getLogger("django_idempotency")


#: Types that a function may unexpectedly return, for example through a wrapper that hides them from the decorator.
UNRUN = (Awaitable, Generator, AsyncGenerator, Future)


class CallEnd(NamedTuple):
    """How a call ends: what is stored, and what the caller gets."""

    work_result: WorkResult
    outcome: Outcome | None = None
    ttl: float | None = None
    returned: Any = None
    raised: Exception | None = None

    def result(self) -> Any:
        """Return the result, or raise the error."""
        if self.raised is not None:
            raise self.raised
        return self.returned


def end_of_result(call: FunctionCall, result: Any) -> CallEnd:
    """Return the end of a call that returned. A result that cannot be stored is still returned, and never recomputed.

    Raises `ConfigurationError` for a generator or a coroutine, which would run when this call is over.
    """
    kind: Any = type(result)
    if _runs_later(kind):
        if isinstance(result, (Coroutine, Generator)):
            result.close()  # it will never be awaited
        raise ConfigurationError(
            f"{call.terms.name} returned a {type(result).__name__}, which runs after the call: nothing would be guarded. "
            "Guard the function that makes it, or return a list."
        )
    if (decided := call.course.decided()) is not None and decided.is_final:
        if decided.outcome is None:
            return _unended(call, decided.work_result, result)
        # The function went on after a step that must be looked into.
        return CallEnd(**decided._asdict(), raised=call.naming(HeldForPerson()))
    if call.course.is_unfinished():
        return _unended(call, WorkResult.FAILED, result)
    given_up = call.operation.needs_rollback()
    try:
        outcome = _outcome(call, OutcomeKind.RESULT, call.terms.results.dump(result))
    except Exception as error:  # noqa: BLE001 - including a serializer's error: the work is done
        outcome = _unstored(call, OutcomeKind.RESULT, error)
    # The work did not mark it: a statement of the serializer failed.
    if not given_up and call.operation.needs_rollback():
        return _failed(StoreUnavailable(), raised=StoreUnavailable())
    return CallEnd(work_result=WorkResult.KEPT, outcome=outcome, ttl=call.current.seconds, returned=result)


def _unended(call: FunctionCall, work_result: WorkResult, result: Any) -> CallEnd:
    """Return the end of a call that returned although a step has not ended."""
    if call.reports:
        return CallEnd(work_result=work_result, returned=result)
    return CallEnd(work_result=WorkResult.CUT, raised=call.naming(OutcomeUnknown()))


def end_of_error(call: FunctionCall, error: BaseException) -> CallEnd:
    """Return the end of a call that raised. A kept exception is stored after the call's writes are rolled back."""
    kept = call.terms.kept
    if call.execution is not None and call.execution.suspends(error):
        leases = call.policy.guarantee is Guarantee.LEASE  # no transaction lasts that long
        return CallEnd(work_result=WorkResult.SUSPENDED) if leases else _failed(error)
    decided = call.course.decided()
    if decided is not None and (decided.is_final or not is_answer(error, kept)):
        return CallEnd(**decided._asdict())
    if not is_answer(error, kept) or call.course.is_unfinished():
        fails = call.reports and isinstance(error, Exception)
        return _failed(error) if fails else CallEnd(work_result=WorkResult.CUT)
    call.operation.set_rollback()
    try:
        outcome = _outcome(call, OutcomeKind.ERROR, dump_error(error, kept))
    except Exception as unstorable:  # noqa: BLE001 - as above
        outcome = _unstored(call, OutcomeKind.ERROR, unstorable)
    return CallEnd(work_result=WorkResult.KEPT, outcome=outcome, ttl=call.current.seconds)


def leaving(call: FunctionCall, error: BaseException) -> BaseException:
    """Return the exception that the caller gets for the one that the function raised."""
    if call.policy.guarantee is Guarantee.ATOMIC and call.execution is not None and call.execution.suspends(error):
        refusal = ConfigurationError(
            f"{call.terms.name} was suspended, and no transaction lasts that long: its writes were rolled back, but "
            f'its engine considers its steps done. Type guarantee="lease".'
        )
        refusal.__cause__ = error
        return refusal
    if isinstance(error, OperationHeld):  # by a step
        held = call.naming(HeldForPerson(str(error)))
        held.__cause__ = error
        return held
    return error


def end_decided(call: FunctionCall, decision: Any) -> CallEnd | None:
    """Return the end of a call that `on_takeover` has decided; `None`: the call runs."""
    match decision:
        case RunAgain():
            return None
        case UseResult(result=result):
            return end_of_result(call, result)
        case HoldForReview():
            key = shortened(call.operation.ticket.key)
            logger.error("Held: %s under %s waits for a person to release its record.", call.terms.name, key)
            return CallEnd(
                work_result=WorkResult.KEPT,
                outcome=OutcomeKind.HELD.outcome(),
                ttl=HELD_FOR,
                raised=call.naming(HeldForPerson()),
            )
    raise ConfigurationError(
        f"on_takeover of {call.terms.name} returned {decision!r}. Return takeover.run(), .found(result) or .hold()."
    )


def end_undecided(call: FunctionCall, error: BaseException) -> CallEnd:
    """Return the end of an undecided takeover: the record stays as it is, so that the next call asks again."""
    end = end_of_error(call, error)
    return end if end.work_result is WorkResult.KEPT else CallEnd(work_result=WorkResult.CUT)


def settle(call: FunctionCall, end: CallEnd) -> None:
    """Settle in the store. Raises what `Operation.settle` raises; `OutcomeUnknown` for a result that may still be undone and is not stored."""
    call.operation.settle(end.work_result, end.outcome, end.ttl)
    if call.operation.left_as is SettledState.COMPLETED:
        call.course.completed()
    elif call.operation.left_as is None and end.work_result is WorkResult.KEPT and call.course.can_be_undone():
        raise call.naming(OutcomeUnknown())


async def asettle(call: FunctionCall, end: CallEnd) -> None:
    """See settle(). A cancellation takes effect only after it has completed."""
    await run_to_completion(call.operation.asettle(end.work_result, end.outcome, end.ttl))
    if call.operation.left_as is SettledState.COMPLETED:
        await call.course.acompleted()
    elif call.operation.left_as is None and end.work_result is WorkResult.KEPT and call.course.can_be_undone():
        raise call.naming(OutcomeUnknown())


def _outcome(call: FunctionCall, kind: OutcomeKind, body: bytes) -> Outcome:
    if not call.policy.store_body:
        return kind.outcome()
    limit = body_limit(call.policy, call.operation.store)
    if len(body) > limit:
        raise Unstorable(f"it takes {len(body)} bytes, but max_body is {limit}")
    return traced(kind.outcome(body))


def _unstored(call: FunctionCall, kind: OutcomeKind, error: Exception) -> Outcome:
    with suppress(Exception):  # raised by a log filter: the work is done, and must not be repeated because of it
        # Log neither its cause nor a serializer's message: they may contain the data that was to be stored.
        logger.warning("The result of %s is not stored: %s.", call.terms.name, str(error).rstrip("."))
    return kind.outcome()


def _failed(error: BaseException, raised: IdempotencyError | None = None) -> CallEnd:
    """Return the end of a call that failed, with what is noted of that."""
    note = failed_with(error, at=datetime.now(timezone.utc))
    return CallEnd(work_result=WorkResult.FAILED, outcome=note, raised=raised)


@lru_cache(maxsize=256)
def _runs_later(kind: type) -> bool:
    return issubclass(kind, UNRUN)
