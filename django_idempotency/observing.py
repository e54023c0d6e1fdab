"""Tells of every event once: a signal, and one structured log record."""

from __future__ import annotations

import logging
from typing import Any

from . import signals
from .core.records import shortened
from .engine import Operation

logger = logging.getLogger("django_idempotency")

#: event → level and sentence. What a person should look at is a warning; what may cost money is an error.
_LOGGED = {
    "claimed": (logging.DEBUG, "Claimed: the work runs."),
    "replayed": (logging.DEBUG, "Replayed: answered from the record."),
    "completed": (logging.DEBUG, "Completed: the answer is remembered."),
    "busy": (logging.INFO, "Busy: another request with this key is running."),
    "released": (logging.INFO, "Released: the key is free again."),
    "mismatched": (logging.WARNING, "Mismatched: the key was used for another request."),
    "taken_over": (logging.WARNING, "Taken over: an earlier owner did not finish."),
    "unavailable": (logging.ERROR, "Unavailable: the store cannot be reached."),
    "lost": (logging.ERROR, "Lost: the record was not settled; it is taken over after its lease."),
}


def observe(event: str, operation: Operation, error: BaseException | None = None, *, request: Any = None) -> None:
    """Send the signal of an event and log it. The key is shortened; everything logged was validated."""
    ticket = operation.ticket
    level, sentence = _LOGGED[event]
    if logger.isEnabledFor(level):
        extra = {
            "event": event,
            "key": shortened(ticket.key),
            "scope": ticket.scope,
            "method": ticket.method,
            "path": ticket.path,
            "guarantee": ticket.guarantee.value,
            "attempt": operation.attempt,
            "error": type(error).__name__ if error else None,
        }
        logger.log(level, sentence, extra={"idempotency": extra})
    signal = getattr(signals, event)
    signal.send_robust(sender=Operation, operation=operation, request=request, error=error)
