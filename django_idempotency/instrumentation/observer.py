"""Reports every event once, by a signal and by one structured log record."""

from __future__ import annotations

import logging
import traceback
import weakref
from typing import Any

from django.utils.encoding import escape_uri_path

from ..core.records import shortened
from ..engine.operation import Operation
from ..signals import EVENTS, Event
from .meters import LEASE_LOST, Source
from .outcomes import short_id
from .trail import trail

logger = logging.getLogger("django_idempotency")

#: The events of a key that comes again after its work (see COUNT_REPLAYS), and that of a lost
#: lease.
_MEASURED = ("replayed", "mismatched", "lost")


class Observer:
    """Reports the events of one request, or of a call without a request."""

    def __init__(
        self, request: Any = None, *, source: Source | None = None, counter: Any = None
    ) -> None:
        #: The labels of its figures; `None`: nothing is measured.
        self._source = source
        #: What counts replays and mismatches (COUNT_REPLAYS); `None`: nothing does.
        self._counter = counter
        self.commits = trail.active is not None
        # The request refers to us: a strong reference would keep the request and its uploads until
        # garbage collection.
        self._request = None if request is None else weakref.ref(request)

    @property
    def request(self) -> Any:
        """The request, if it is still alive."""
        return None if self._request is None else self._request()

    def __call__(
        self, event: str, operation: Operation, error: BaseException | None = None
    ) -> None:
        """Log an event and send its signal. Receivers may be sync or async.

        The failure of a receiver or a log filter changes nothing.
        """
        signal = EVENTS[event]
        if event in _MEASURED and (self._source is not None or self._counter is not None):
            self._measure(event, operation)
        if operation.details is not None:
            operation.details.heard(event)
        if logger.isEnabledFor(signal.level):
            log(signal, operation, error, route=route_of(self.request))
        if trail.active is not None:
            trail.active.event(event, operation, self.request)
        if signal.receivers:
            try:
                with operation.savepoint():
                    signal.send_robust(
                        sender=Operation, operation=operation, request=self.request, error=error
                    )
            # It catches receivers' errors. The ending interpreter starts no event loop for async
            # ones.
            except RuntimeError:
                logger.warning(
                    "The interpreter is shutting down: async receivers of %s were not called.",
                    event,
                )

    def committing(self, event: str, operation: Operation) -> None:
        """Write the event of a settle in its transaction.

        Raises `StoreUnavailable`: then nothing is committed.
        """
        if trail.active is not None:
            trail.active.committing(event, operation, self.request)

    def _measure(self, event: str, operation: Operation) -> None:
        if event == "lost":
            if self._source is not None:
                LEASE_LOST.record(**self._source._asdict())
        elif operation.record is not None and self._counter is not None:
            self._counter.add(operation.store, operation.record, replayed=event == "replayed")


def route_of(request: Any) -> str | None:
    """Return the URL pattern of a request, as far as it is known; `None`: there is none."""
    match = getattr(request, "resolver_match", None)
    return None if match is None else match.route


def log(
    event: Event, operation: Operation, error: BaseException | None, *, route: str | None = None
) -> None:
    """Write one structured record. The key is shortened; everything in the record was validated.

    The message itself names the method, the route (without one: the path, or the function), the
    key's hash, and what the store's driver said. An ERROR has its traceback.
    """
    ticket = operation.ticket
    cause = _cause(error)
    where = ticket.path if route is None else route
    extra = {
        "event": event.name,
        "key": shortened(ticket.key),
        "scope": ticket.scope,
        "method": ticket.method,
        "path": ticket.path,
        "route": route,
        "key_hash": short_id(operation),
        "guarantee": ticket.guarantee.value,
        "attempt": operation.attempt,
        "error": type(error).__name__ if error else None,
        "cause": cause,
    }
    facts = (ticket.method, where, short_id(operation), *((cause,) if cause else ()))
    traceback = error if event.level >= logging.ERROR else None
    _write(
        event.level,
        f"{event.sentence} %s %s, key %s" + (": %s" if cause else ""),
        extra,
        *facts,
        error=traceback,
    )


def _cause(error: BaseException | None) -> str | None:
    """Return the class and the first line of the error behind ours, and what to type; `None`: there
    is none.
    """
    cause = error
    while cause is not None and cause.__cause__ is not None:
        cause = cause.__cause__
    if cause is None or cause is error:
        return None
    said = ": ".join([type(cause).__name__, *str(cause).splitlines()[:1]])
    advice = getattr(error, "advice", "")
    return f"{said}. {advice}" if advice else said


def notify_unguarded(request: Any, reason: str, why: str, level: int, key: str | None) -> None:
    """Report a request that asked to be guarded but is not, by a signal and a log record."""
    signal = EVENTS["unguarded"]
    log_request(signal, level, request, reason, why, key)
    if signal.receivers:
        signal.send_robust(
            sender=Operation, operation=None, request=request, error=None, reason=reason
        )


async def anotify_unguarded(
    request: Any, reason: str, why: str, level: int, key: str | None
) -> None:
    """See notify_unguarded()."""
    signal = EVENTS["unguarded"]
    log_request(signal, level, request, reason, why, key)
    if signal.receivers:
        await signal.asend_robust(
            sender=Operation, operation=None, request=request, error=None, reason=reason
        )


def log_request(  # noqa: PLR0917 - ours alone
    event: Event,
    level: int,
    request: Any,
    reason: str,
    why: str,
    key: str | None,
    error: BaseException | None = None,
) -> None:
    """Write one structured record about a request without an operation."""
    if logger.isEnabledFor(level):
        method = str(request.method)
        path = escape_uri_path(request.path)
        extra = {
            "event": event.name,
            "key": shortened(key or ""),
            "method": method,
            "path": path,
            "reason": reason,
        }
        _write(level, event.sentence, extra, method, path, why, error=error)


def _write(
    level: int, sentence: str, facts: dict[str, Any], *args: str, error: BaseException | None = None
) -> None:
    try:
        logger.log(level, sentence, *args, extra={"idempotency": facts}, exc_info=error)
    except Exception:  # noqa: BLE001 - a filter's: logging catches only handlers' errors, which it prints like this
        if logging.raiseExceptions:
            traceback.print_exc()
