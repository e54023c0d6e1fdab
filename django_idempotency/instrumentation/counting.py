"""What requests and calls have in common when they are counted and traced."""

from __future__ import annotations

from ..core.records import TRACE, Outcome
from ..core.rules import Execute, Replay, Verdict
from ..engine.operation import Operation
from .meters import WAIT, Facts, Source, meters
from .outcomes import EXECUTED, REPLAYED, RESUMED, TAKEN_OVER, WAITED

#: Characters of `short_id()`: 48 bits, so that two keys of one log are not confused.
_LENGTH = 12


def short_id(operation: Operation) -> str:
    """Return the beginning of the record's id: a hash of scope and key, by which the admin finds the record."""
    return operation.ticket.id.hex[:_LENGTH]


def facts_of(operation: Operation) -> Facts:
    """Return what a trace may show of an operation."""
    replayed = operation.run is None and operation.record is not None
    return Facts(
        key_hash=short_id(operation),
        attempt=operation.attempt,
        first_trace=trace_of(operation.record.outcome) if replayed and operation.record is not None else "",
    )


def outcome_of_verdict(verdict: Verdict, operation: Operation) -> str | None:
    """Return the outcome of a verdict by which the work runs, or its response is returned; `None`: of any other."""
    match verdict:
        case Execute(takeover=takeover, resumed=resumed):
            return TAKEN_OVER if takeover else RESUMED if resumed else EXECUTED
        case Replay():
            return WAITED if operation.waited else REPLAYED
    return None


def count(source: Source, outcome: str, operation: Operation | None) -> None:
    """Count a request or a call, and how long it waited."""
    meters.request(source, outcome, None if operation is None else facts_of(operation))
    if operation is not None and operation.waited:
        WAIT.record(operation.waited, **source._asdict())


def traced(outcome: Outcome) -> Outcome:
    """Return an outcome with the trace context of the running request, if a meter knows one: a replay's span links to it."""
    if not meters.active or not (trace := meters.current_trace()):
        return outcome
    return outcome._replace(headers=(*outcome.headers, (TRACE, trace)))


def trace_of(outcome: Outcome | None) -> str:
    """Return the trace context that is remembered with an outcome, or ""."""
    return "" if outcome is None else next((value for name, value in outcome.headers if name == TRACE), "")
