"""What became of a request or a call, as metrics count it: one word, counted once.

A problem says its own.
"""

from __future__ import annotations

from typing import Final

from ..core.records import TRACE, Outcome
from ..core.rules import Execute, Replay, Verdict
from ..engine.operation import Operation
from .meters import WAIT, Facts, Source, meters

EXECUTED: Final = (
    "executed"  # the work runs, for the first time or after a failure that left the key free
)
RESUMED: Final = "resumed"  # the work runs on: a durable execution resumes it
TAKEN_OVER: Final = "taken_over"  # the work runs again: an earlier owner did not finish
REPLAYED: Final = "replayed"  # the stored response was returned
WAITED: Final = "waited"  # the same, after waiting for the first request to finish
RUNNING: Final = "running"  # another request with this key is running
CONTENDED: Final = "contended"  # other transactions were in its way, so it was refused
MISMATCH: Final = "mismatch"  # the key was used for a different request
MISSING: Final = "missing"  # no key where one is required
INVALID: Final = (
    "invalid"  # a key that cannot be one: malformed, dated ahead, on a method without support
)
LATE: Final = "late"  # the key is older than its record would be
HELD: Final = "held"  # a person decides what happens to this key
NOT_STORED: Final = "not_stored"  # it ran before, and its response was not stored
FLOODED: Final = "flooded"  # its client makes too many new keys
SUSPECTED: Final = "suspected"  # refused, since the same was sent with another key
REFUSED: Final = "refused"  # refused for any other reason, before anything ran
UNREADABLE: Final = "unreadable"  # the record is damaged
STORE_ERROR: Final = "store_error"  # the store did not respond, so the request was refused
DEGRADED: Final = "degraded"  # the store did not respond, so the work runs without a guard
UNGUARDED: Final = "unguarded"  # it asked to be guarded, and runs without a guard
OBSERVED: Final = "observed"  # it runs without a guard, which only observes
UNKEYED: Final = "unkeyed"  # it has no key, needs none, and runs

OUTCOMES: Final = (
    EXECUTED,
    RESUMED,
    TAKEN_OVER,
    REPLAYED,
    WAITED,
    RUNNING,
    MISMATCH,
    MISSING,
    INVALID,
    LATE,
    HELD,
    NOT_STORED,
    CONTENDED,
    FLOODED,
    SUSPECTED,
    REFUSED,
    UNREADABLE,
    STORE_ERROR,
    DEGRADED,
    UNGUARDED,
    OBSERVED,
    UNKEYED,
)

#: Characters of `short_id()`: 48 bits, so that two keys of one log are not confused.
ID_LENGTH = 12


def short_id(operation: Operation) -> str:
    """Return the beginning of the record's id: a hash of scope and key, by which the admin finds
    the record.
    """
    return operation.ticket.id.hex[:ID_LENGTH]


def facts_of(operation: Operation) -> Facts:
    """Return what a trace may show of an operation."""
    replayed = operation.run is None and operation.record is not None
    return Facts(
        key_hash=short_id(operation),
        attempt=operation.attempt,
        first_trace=trace_of(operation.record.outcome)
        if replayed and operation.record is not None
        else "",
    )


def outcome_of_verdict(verdict: Verdict, operation: Operation) -> str | None:
    """Return the outcome of a verdict by which the work runs, or its response is returned; `None`:
    of any other.
    """
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
    """Return an outcome with the trace context of the running request, if a meter knows one: a
    replay's span links to it.
    """
    if not meters.active or not (trace := meters.current_trace()):
        return outcome
    return outcome._replace(headers=(*outcome.headers, (TRACE, trace)))


def trace_of(outcome: Outcome | None) -> str:
    """Return the trace context that is remembered with an outcome, or ""."""
    return (
        ""
        if outcome is None
        else next((value for name, value in outcome.headers if name == TRACE), "")
    )
