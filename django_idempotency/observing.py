"""Tells of every event once: a signal, and one structured log record."""

from __future__ import annotations

import logging
import traceback
import weakref
from typing import Any

from . import signals
from .core.records import shortened
from .engine import Operation

logger = logging.getLogger("django_idempotency")

#: event → its signal, level and sentence. What a person should look at is a warning; what may cost money is an error.
_TOLD = {
    "claimed": (signals.claimed, logging.DEBUG, "Claimed: the work runs."),
    "replayed": (signals.replayed, logging.DEBUG, "Replayed: answered from the record."),
    "resumed": (signals.resumed, logging.DEBUG, "Resumed: a durable execution goes on."),
    "completed": (signals.completed, logging.DEBUG, "Completed: the answer is remembered."),
    "busy": (signals.busy, logging.INFO, "Busy: another request with this key is running."),
    "released": (signals.released, logging.INFO, "Released: the key is free again."),
    "suspended": (signals.suspended, logging.DEBUG, "Suspended: the key waits for its durable execution."),
    "mismatched": (signals.mismatched, logging.WARNING, "Mismatched: the key was used for another request."),
    "taken_over": (signals.taken_over, logging.WARNING, "Taken over: an earlier owner did not finish."),
    "unavailable": (signals.unavailable, logging.ERROR, "Unavailable: the store cannot be reached."),
    "lost": (signals.lost, logging.ERROR, "Lost: the record was not settled; it is taken over after its lease."),
}


class Observer:
    """Tells of the events of one request, or of none."""

    def __init__(self, request: Any = None) -> None:
        # The request leads to us: held here, it would live on, with its uploads, until garbage is collected.
        self._request = None if request is None else weakref.ref(request)

    @property
    def request(self) -> Any:
        """The request, if it lives."""
        return None if self._request is None else self._request()

    def __call__(self, event: str, operation: Operation, error: BaseException | None = None) -> None:
        """Log an event and send its signal. Neither a receiver nor a log filter that fails changes anything."""
        signal, level, sentence = _TOLD[event]
        if logger.isEnabledFor(level):
            log(level, sentence, event, operation, error)
        if signal.receivers:
            with operation.aside():
                signal.send_robust(sender=Operation, operation=operation, request=self.request, error=error)

    async def asend(self, event: str, operation: Operation, error: BaseException | None = None) -> None:
        """See __call__(). Receivers may be sync or async, and use the database."""
        signal, level, sentence = _TOLD[event]
        if logger.isEnabledFor(level):
            log(level, sentence, event, operation, error)
        if signal.receivers:
            await signal.asend_robust(sender=Operation, operation=operation, request=self.request, error=error)


def log(level: int, sentence: str, event: str, operation: Operation, error: BaseException | None) -> None:
    """Write one structured record. The key is shortened; everything in it was validated."""
    ticket = operation.ticket
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
    try:
        logger.log(level, sentence, extra={"idempotency": extra})
    except Exception:  # noqa: BLE001 - a filter's: logging catches those of handlers only, and shows them like this
        if logging.raiseExceptions:
            traceback.print_exc()
