"""Runs a guarded call: find it, open, replay or work, settle; and how it ends: what is stored, and
what its caller gets.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import lru_cache
from os import environ
from typing import Any, NamedTuple, TypeAlias

from asgiref.sync import sync_to_async
from django.db import Error

from ..core import rules
from ..core.conclusions import Ending, SettledState, WorkResult
from ..core.failures import failed_with
from ..core.records import CANCELLATIONS, UNDONE, Outcome, OutcomeKind, kind_of
from ..core.rules import Busy, Contended, Execute, Late, Mismatch, Replay, Verdict
from ..core.serialization.results import Unreadable, Unstorable
from ..engine import threads
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
    StoreUnavailable,
    is_answer,
)
from ..instrumentation.outcomes import HELD, REFUSED, count, traced
from ..runtime import switch
from ..runtime.derivation import Unstored
from ..runtime.transactions import arefuse_open_transactions, refuse_left_open
from ..runtime.wings import extended, wing
from ..stores.base import utcnow
from ..stores.lending import in_database_thread
from .call import FunctionCall, best_effort_key, go_without_key, key_of, plan_of
from .current import CurrentOperation, Unguarded
from .terms import FunctionTerms

logger = logging.getLogger("django_idempotency")

#: Types that a function may unexpectedly return, for example through a wrapper that hides them from
#: the decorator.
UNRUN = (Awaitable, Generator, AsyncGenerator, Future)


class CallEnd(NamedTuple):
    """How a call ends: what is stored, and what the caller gets."""

    ending: Ending
    returned: Any = None
    raised: Exception | None = None


#: A call under a key, or the context in which a function runs unguarded.
Begun: TypeAlias = FunctionCall | CurrentOperation | Unguarded


def keyed(terms: FunctionTerms, key: str | None) -> Callable[..., Any]:
    """Return the guarded function, under a key of its own or (`None`) the selected one."""
    if terms.is_async:

        @functools.wraps(terms.function)
        async def acall(*args: Any, **kwargs: Any) -> Any:
            return (await arun(terms, args, kwargs, key))[0]

        return acall

    @functools.wraps(terms.function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return run(terms, args, kwargs, key)[0]

    return call


def begin(
    terms: FunctionTerms,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    key: str | None,
    reports: bool = True,
) -> Begun:
    """Return the call, or the context in which to run the function unguarded.

    Raises only before anything has run.
    """
    payload = terms.payload(args, kwargs)
    if (switch.overrides or environ.get(switch.VARIABLE)) and not switch.enabled():
        switch.warn_once()
        off: CurrentOperation = extended(CurrentOperation)(
            Unstored(terms.scope, key or best_effort_key(terms, payload))
        )
        return off
    if key is None and (key := key_of(terms, payload)) is None:
        go_without_key(terms)
        return Unguarded()
    return FunctionCall(plan_of(terms), payload, key, reports=reports)


# --------------------------------------------------------------------------------------------- sync


def run(
    terms: FunctionTerms,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    key: str | None = None,
    reports: bool = True,
) -> tuple[Any, bool, bool]:
    """Run a call, or replay the first one.

    Return the result, whether it is a replay, and whether it was guarded.

    `reports`: see `FunctionCall`.

    Raises `InProgress`, `RequestMismatch`, `ResponseNotStored`, `HeldForPerson`,
    `StoreUnavailable`, the function's own exceptions, and those of `AtomicOperation.settle`.
    """
    begun: list[Begun] = []
    try:
        return _run(begun, terms, args, kwargs, key=key, reports=reports)
    except BaseException:
        for call in begun:
            call._leave()  # noqa: SLF001 - ours
        raise


def _run(
    begun: list[Begun],
    terms: FunctionTerms,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    key: str | None,
    reports: bool,
) -> tuple[Any, bool, bool]:
    """See run(), which ends what has begun if an interrupt cuts this.

    Not in one function: Python covers no nested `try:`.
    """
    call = begin(terms, args, kwargs, key, reports)
    begun.append(call)
    if not isinstance(call, FunctionCall):
        with call:
            return terms.function(*args, **kwargs), False, False
    try:
        verdict = call.operation.open(call.plan.patience)
    except StoreUnavailable as error:
        call.go_without_store(error)
        with call.running(args, kwargs):
            return terms.function(*args, **kwargs), False, False
    if not isinstance(verdict, Execute):
        return replayed(call, verdict), True, True
    if call.plan.source is not None:
        call.count(verdict)
    end = (
        call.plan.takeovers.decide(call)
        if verdict.takeover and call.plan.takeovers is not None
        else None
    )
    if end is None:
        current = call.running(args, kwargs)
        try:
            with current:
                end = end_of_result(call, terms.function(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - raised again
            call.course.left_by(error)
            settle(call, end_of_error(call, error))
            raise leaving(call, error)  # noqa: B904 - its cause is its own
    settle(call, end)
    if end.raised is not None:
        raise end.raised
    return end.returned, False, True


# -------------------------------------------------------------------------------------------- async


async def arun(
    terms: FunctionTerms,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    key: str | None = None,
    reports: bool = True,
) -> tuple[Any, bool, bool]:
    """See run(). A cancellation never frees a key early."""
    begun: list[Begun] = []
    try:
        return await _arun(begun, terms, args, kwargs, key=key, reports=reports)
    except BaseException:
        for call in begun:
            call._leave()  # noqa: SLF001 - ours
        raise


async def _arun(
    begun: list[Begun],
    terms: FunctionTerms,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    key: str | None,
    reports: bool,
) -> tuple[Any, bool, bool]:
    """See _run()."""
    call = begin(terms, args, kwargs, key, reports)
    begun.append(call)
    if not isinstance(call, FunctionCall):
        with call:
            return await terms.function(*args, **kwargs), False, False
    await arefuse_open_transactions()
    try:
        verdict = await threads.aopen(call.operation, call.plan.patience)
    except StoreUnavailable as error:
        await in_database_thread(call.go_without_store, error)
        with call.running(args, kwargs):
            return await terms.function(*args, **kwargs), False, False
    if not isinstance(verdict, Execute):
        # What the project loads a result with may query the ORM, which refuses calls from an event
        # loop.
        plain = terms.on_replay is None and not terms.results.serialized
        result = replayed(call, verdict) if plain else await sync_to_async(replayed)(call, verdict)
        return result, True, True
    if call.plan.source is not None:
        call.count(verdict)
    end = (
        await call.plan.takeovers.adecide(call)
        if verdict.takeover and call.plan.takeovers is not None
        else None
    )
    if end is None:
        current = call.running(args, kwargs)
        try:
            with current:
                end = end_of_result(call, await terms.function(*args, **kwargs))
        except (
            GeneratorExit
        ) as closed:  # nothing can be awaited any more, and an aborted run writes nothing
            settle(call, end_of_error(call, closed))
            raise
        except BaseException as error:  # noqa: BLE001 - raised again
            await call.course.aleft_by(error)
            await asettle(call, end_of_error(call, error))
            raise leaving(call, error)  # noqa: B904 - its cause is its own
    await asettle(call, end)
    if end.raised is not None:
        raise end.raised
    return end.returned, False, True


# -------------------------------------------------------------------------------------- how it ends


def end_of_result(call: FunctionCall, result: Any) -> CallEnd:
    """Return the end of a call that returned.

    A result that cannot be stored is still returned, and never recomputed.

    Raises `ConfigurationError` for a generator or a coroutine, which would run when this call is
    over, and `TransactionLeftOpen`.
    """
    if call.plan.leases:
        assert isinstance(call.operation, LeaseOperation)  # its plan has seen to that
        refuse_left_open(call.operation, but=call.plan.store.using)
    kind: Any = type(result)
    if _runs_later(kind):
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
    try:
        outcome = _outcome(call, OutcomeKind.RESULT, call.terms.results.dump, result)
    except (
        Unstorable,
        Error,
    ) as error:  # the work is done, and its settle knows whether the database has undone it
        outcome = _unstored(call, OutcomeKind.RESULT, error)
    except Exception as cut:
        if not call.plan.leases:
            raise  # as in the work: it is rolled back, and a retry does it again
        # No rollback can take back what a lease's work has done: it is remembered, and the worker
        # hears of its time limit.
        outcome = _outcome(call, OutcomeKind.RESULT, call.terms.results.dump, result)
        ending = Ending(WorkResult.KEPT, outcome, call.current.seconds, succeeded=True)
        return CallEnd(ending, raised=cut)
    ending = Ending(WorkResult.KEPT, outcome, call.current.seconds, succeeded=True)
    return CallEnd(ending, returned=result)


def _decided(call: FunctionCall, result: Any) -> CallEnd | None:
    """Return the end of a call that returned, but whose steps or `derive()` have decided it;
    `None`: it is its result.
    """
    if (decided := call.course.decided()) is not None and decided.is_final:
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
        outcome = _outcome(call, OutcomeKind.ERROR, call.plan.keeping.dump_error, error, kept)
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


def settle(call: FunctionCall, end: CallEnd) -> None:
    """Settle in the store.

    Raises what `Operation.settle` raises; `OutcomeUnknown` for a result that may still be undone
    and is not stored.
    """
    try:
        call.operation.settle(end.ending)
    except IdempotencyError as error:
        raise call.naming(error)  # noqa: B904 - itself
    if call.plan.has_course and _is_completed(call, end):
        call.course.completed()


async def asettle(call: FunctionCall, end: CallEnd) -> None:
    """See settle(). A cancellation takes effect only after it has completed."""
    try:
        await threads.asettle(call.operation, end.ending)
    except IdempotencyError as error:
        raise call.naming(error)  # noqa: B904 - itself
    if call.plan.has_course and _is_completed(call, end):
        await call.course.acompleted()


def _is_completed(call: FunctionCall, end: CallEnd) -> bool:
    left_as = call.operation.left_as
    is_kept = end.ending.work_result is WorkResult.KEPT
    if left_as is None and is_kept and call.course.can_be_undone():
        raise call.naming(OutcomeUnknown())
    return left_as is SettledState.COMPLETED


def _outcome(
    call: FunctionCall, kind: OutcomeKind, dump: Callable[..., bytes], *values: Any
) -> Outcome:
    plan, body = call.plan, dump(*values)
    if not plan.policy.store_body:
        return kind.outcome()
    if len(body) > plan.max_body:
        raise Unstorable(f"it takes {len(body)} bytes, but max_body is {plan.max_body}")
    outcome = Outcome(kind.status, kind.headers, body)
    return traced(outcome) if plan.meters else outcome


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
    note = failed_with(error, at=utcnow())
    return CallEnd(Ending(WorkResult.FAILED, note))


@lru_cache(maxsize=256)
def _runs_later(kind: type) -> bool:
    return issubclass(kind, UNRUN)


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
    if (outcome := rules.readable(stored)) is None:
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
        error: Exception = wing("kept_exceptions").load_error(outcome.body, terms.kept)
    except Unreadable as unreadable:
        raise ResponseNotStored(
            f"{terms.name} was carried out, but its result cannot be read: {unreadable}"
        ) from unreadable
    raise error
