"""What a call gets that does not run: the stored result, or an error."""

from __future__ import annotations

from typing import Any

from ..core import rules
from ..core.at_rest import readable
from ..core.records import CANCELLATIONS, UNDONE, Outcome, OutcomeKind, kind_of
from ..core.rules import Busy, Execute, Mismatch, Replay, Verdict
from ..core.serialization.results import Unreadable, load_error
from ..errors import (
    HeldForPerson,
    IdempotencyError,
    InProgress,
    OperationCancelled,
    OperationUndone,
    Problem,
    RecordUnreadable,
    RequestMismatch,
    ResponseNotStored,
)
from ..instrumentation.counting import count
from ..instrumentation.outcomes import HELD, REFUSED
from .call import FunctionCall
from .terms import FunctionTerms


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
    call.count(verdict)
    return result


def _count_refusal(call: FunctionCall, error: IdempotencyError) -> None:
    if call.source is not None:
        held = isinstance(error, HeldForPerson)
        refused = error.outcome if isinstance(error, Problem) else REFUSED
        count(call.source, HELD if held else refused, call.operation)


def _answer(call: FunctionCall, verdict: Verdict) -> Any:
    match verdict:
        case Replay(outcome=outcome):
            record = call.operation.record
            assert record is not None
            result = remembered(call.terms, outcome)
            return result if call.terms.on_replay is None else call.terms.on_replay(result, record)
        case Busy(retry_after=retry_after):
            raise InProgress(headers={"Retry-After": str(retry_after)})
        case Mismatch():
            raise RequestMismatch
        case rules.Unreadable():
            raise RecordUnreadable
        case Execute():
            raise AssertionError("this call runs")


def remembered(terms: FunctionTerms, stored: Outcome) -> Any:
    """Return the result in an outcome, or raise its exception, `ResponseNotStored`, `RecordUnreadable` or `HeldForPerson`."""
    if (outcome := readable(stored)) is None:
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
