"""How a call of a guarded function ends: what is stored of it, and what its caller gets.

The last part is about a call that does not run, and gets the stored result.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db import Error

from ..core import rules
from ..core.conclusions import Ending, WorkResult
from ..core.failures import failed_with
from ..core.records import CANCELLATIONS, UNDONE, Outcome, OutcomeKind, kind_of
from ..core.rules import Busy, Contended, Execute, Late, Mismatch, Replay, Verdict
from ..core.serialization.results import Unreadable, Unstorable
from ..engine.lease import LeaseOperation
from ..errors import (
    ConfigurationError,
    HeldForPerson,
    IdempotencyError,
    InProgress,
    KeyExpired,
    LostRace,
    OperationCancelled,
    OperationHeld,
    OperationUndone,
    OutcomeUnknown,
    Problem,
    RecordUnreadable,
    RequestMismatch,
    ResponseNotStored,
    is_answer,
)
from ..instrumentation.outcomes import HELD, REFUSED, count, traced
from ..runtime.transactions import refuse_left_open
from .kept_exceptions import dump_error, load_error
from .terms import FunctionTerms

if TYPE_CHECKING:
    from .call import FunctionCall

logger = logging.getLogger("django_idempotency")

#: Types that a function may unexpectedly return, for example through a wrapper that hides them from
#: the decorator.
UNRUN = (Awaitable, Generator, AsyncGenerator, Future)


class CallEnd(NamedTuple):
    """How a call ends: what is stored, and what the caller gets."""

    ending: Ending
    returned: Any = None
    raised: Exception | None = None


def end_of_result(call: FunctionCall, result: Any) -> CallEnd:
    """Return the end of a call that returned.

    A result that cannot be stored is still returned, and never recomputed.

    Raises `ConfigurationError` for a generator or a coroutine, which would run when this call is
    over, and `TransactionLeftOpen`.
    """
    if call.plan.leases:
        assert isinstance(call.operation, LeaseOperation)  # its plan has seen to that
        refuse_left_open(call.operation, but=call.plan.store.using)
    if isinstance(result, UNRUN):
        if isinstance(result, (Coroutine, Generator)):
            result.close()  # it will never be awaited
        raise ConfigurationError(
            f"{call.terms.name} returned a {type(result).__name__}, which runs after the "
            "call: nothing would be guarded. "
            "Guard the function that makes it, or return a list."
        )
    if (call.plan.has_course or call.current.is_held) and (
        decided := _decided(call, result)
    ) is not None:
        return decided
    raised = None
    try:
        outcome = _outcome(call, OutcomeKind.RESULT, call.terms.results.dump, result)
    except (Unstorable, Error) as error:
        # The work is done, and its settle knows whether the database has undone it.
        outcome = _unstored(call, OutcomeKind.RESULT, error)
    except Exception as cut:
        if not call.plan.leases:
            raise  # as in the work: it is rolled back, and a retry does it again
        # No rollback can take back what a lease's work has done: it is remembered, and the worker
        # hears of its time limit.
        outcome = _outcome(call, OutcomeKind.RESULT, call.terms.results.dump, result)
        raised = cut
    ending = Ending(WorkResult.KEPT, outcome, call.current.seconds, succeeded=True)
    return CallEnd(ending, result, raised)


def _decided(call: FunctionCall, result: Any) -> CallEnd | None:
    """Return the end of a call that returned, but whose steps or `derive()` have decided it;
    `None`: it is its result.
    """
    decided = call.course.decided()
    if decided is not None and decided.is_final:
        if decided.outcome is None:
            return _unended(call, decided.work_result, result)
        # The function went on after a step that must be looked into.
        return CallEnd(decided, raised=call.naming(HeldForPerson()))
    return _unended(call, WorkResult.FAILED, result) if call.course.is_unfinished() else None


def _unended(call: FunctionCall, work_result: WorkResult, result: Any) -> CallEnd:
    """Return the end of a call that returned although a step has not ended."""
    if call.reports:
        return CallEnd(Ending(work_result), returned=result)
    return CallEnd(Ending(WorkResult.CUT), raised=call.naming(OutcomeUnknown()))


def end_of_error(call: FunctionCall, error: BaseException) -> CallEnd:
    """Return the end of a call that raised.

    A kept exception is stored after the call's writes are rolled back.
    """
    kept = call.plan.kept
    if call.execution is not None and call.execution.suspends(error):
        # No transaction lasts that long.
        return CallEnd(Ending(WorkResult.SUSPENDED)) if call.plan.leases else _failed(error)
    decided = call.course.decided()
    if decided is not None and (decided.is_final or not is_answer(error, kept)):
        return CallEnd(decided)
    if not is_answer(error, kept) or call.course.is_unfinished():
        fails = call.reports and isinstance(error, Exception)
        return _failed(error) if fails else CallEnd(Ending(WorkResult.CUT))
    call.operation.set_rollback()
    try:
        outcome = _outcome(call, OutcomeKind.ERROR, dump_error, error, kept)
    except Unstorable as unstorable:
        outcome = _unstored(call, OutcomeKind.ERROR, unstorable)
    return CallEnd(Ending(WorkResult.KEPT, outcome, call.current.seconds))


def leaving(call: FunctionCall, error: BaseException) -> BaseException:
    """Return the exception that the caller gets for the one that the function raised."""
    if not call.plan.leases and call.execution is not None and call.execution.suspends(error):
        refusal = ConfigurationError(
            f"{call.terms.name} was suspended, and no transaction lasts that long: its "
            "writes were rolled back, but "
            f'its engine considers its steps done. Type guarantee="lease".'
        )
        refusal.__cause__ = error
        return refusal
    if isinstance(error, OperationHeld):  # by a step
        held = call.naming(HeldForPerson(str(error)))
        held.__cause__ = error
        return held
    return error


def _outcome(
    call: FunctionCall, kind: OutcomeKind, dump: Callable[..., bytes], *values: object
) -> Outcome:
    plan = call.plan
    body = dump(*values)
    if not plan.policy.store_body:
        return kind.outcome()
    if len(body) > plan.max_body:
        raise Unstorable(f"it takes {len(body)} bytes, but max_body is {plan.max_body}")
    outcome = Outcome(kind.status, kind.headers, body)
    return outcome if plan.source is None else traced(outcome)


def _unstored(call: FunctionCall, kind: OutcomeKind, error: Exception) -> Outcome:
    # Raised by a log filter: the work is done, and must not be repeated because of it.
    with suppress(Exception):
        # Log neither its cause nor a serializer's message: they may contain the data that was to be
        # stored.
        logger.warning(
            "The result of %s is not stored: %s.", call.terms.name, str(error).rstrip(".")
        )
    return kind.outcome()


def _failed(error: BaseException) -> CallEnd:
    """Return the end of a call that failed, with what is noted of that."""
    note = failed_with(error, at=datetime.now(timezone.utc))
    return CallEnd(Ending(WorkResult.FAILED, note))


# ------------------------------------------------------------------------- a call that does not run


def replayed(call: FunctionCall, verdict: Verdict) -> Any:
    """Return the stored result, or raise the error of a call that does not run."""
    try:
        result = _answer(call, verdict)
    except IdempotencyError as error:
        _count_refusal(call, error)
        raise call.naming(error)  # noqa: B904 - itself
    except Exception:  # the stored one, or on_replay's
        call.count(verdict)
        raise
    if call.plan.source is not None:
        call.count(verdict)
    return result


def _count_refusal(call: FunctionCall, error: IdempotencyError) -> None:
    if call.plan.source is not None:
        held = isinstance(error, HeldForPerson)
        refused = error.outcome if isinstance(error, Problem) else REFUSED
        count(call.plan.source, HELD if held else refused, call.operation)


def _answer(call: FunctionCall, verdict: Verdict) -> Any:
    match verdict:
        case Replay(outcome=outcome):
            record = call.operation.record
            assert record is not None
            result = remembered(call.terms, outcome)
            return result if call.terms.on_replay is None else call.terms.on_replay(result, record)
        case Busy(retry_after=retry_after):
            raise InProgress(headers={"Retry-After": str(retry_after)})
        case Contended(retry_after=retry_after):
            raise LostRace(headers={"Retry-After": str(retry_after)})
        case Mismatch():
            raise RequestMismatch
        case Late():
            raise KeyExpired
        case rules.Unreadable():
            raise RecordUnreadable
        case Execute():
            raise AssertionError("this call runs")


def remembered(terms: FunctionTerms, stored: Outcome) -> Any:
    """Return the result in an outcome, or raise its exception, `ResponseNotStored`,
    `RecordUnreadable` or `HeldForPerson`.
    """
    outcome = rules.readable(stored)
    if outcome is None:
        raise RecordUnreadable
    if outcome in CANCELLATIONS:
        raise OperationUndone if outcome == UNDONE else OperationCancelled
    kind = kind_of(outcome)
    if kind is OutcomeKind.HELD:
        raise HeldForPerson
    if not isinstance(outcome.body, bytes):
        raise ResponseNotStored
    try:
        if kind is not OutcomeKind.ERROR:
            return terms.results.load(outcome.body)
        error = load_error(outcome.body, terms.kept)
    except Unreadable as unreadable:
        raise ResponseNotStored(
            f"{terms.name} was carried out, but its result cannot be read: {unreadable}"
        ) from unreadable
    raise error
