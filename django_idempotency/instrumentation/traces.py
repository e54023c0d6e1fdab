"""The trace context of the request that did the work, remembered with its response: a replay's span links to it."""

from __future__ import annotations

from ..core.records import TRACE, Outcome
from .meters import meters


def traced(outcome: Outcome) -> Outcome:
    """Return an outcome with the trace context of the running request, if a meter knows one."""
    if not meters.active or not (trace := meters.current_trace()):
        return outcome
    return outcome._replace(headers=(*outcome.headers, (TRACE, trace)))


def trace_of(outcome: Outcome | None) -> str:
    """Return the trace context that is remembered with an outcome, or ""."""
    return "" if outcome is None else next((value for name, value in outcome.headers if name == TRACE), "")
