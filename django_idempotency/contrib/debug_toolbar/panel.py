"""The panel: it listens to the events of one request, and shows them with what they mean."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from debug_toolbar.panels import Panel
from django.db import connections
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ...core import rules
from ...core.policy import Policy
from ...core.records import shortened
from ...core.statuses import HeaderStatus
from ...engine.operation import Operation
from ...http.exchange import exchange_of, noted
from ...models import IdempotencyRecord
from ...signals import EVENTS
from ...stores.base import innermost

#: What became of the response.
MEANINGS: dict[HeaderStatus | None, str] = {
    HeaderStatus.CREATED: "Stored: a retry gets this response.",
    HeaderStatus.RELEASED: "Not stored: a refusal, or dropped by the view. The key is free, even "
    "for another body.",
    HeaderStatus.FAILED: "Not stored: it failed. A retry with the same body runs it again.",
    HeaderStatus.LOST: "Not stored: another request owns the record, or the store did not "
    "respond in time.",
    HeaderStatus.REPLAYED: "Stored before: this is the response of that run.",
    HeaderStatus.NOT_STORED: "It ran before, and its response was not stored: too large, a "
    "stream, or not to be "
    "stored.",
    HeaderStatus.IN_PROGRESS: "Refused: a request with this key is running.",
    HeaderStatus.MISMATCH: "Refused: the key belongs to a different request.",
    HeaderStatus.EXPIRED: "Refused: the key is older than its record would be.",
    HeaderStatus.REFUSED: "Refused before anything ran: the response says why.",
    HeaderStatus.HELD: "Refused: a person finds out whether it was carried out before.",
    HeaderStatus.UNKNOWN: "It may or may not have been committed: a retry finds out.",
    HeaderStatus.DEGRADED: "Not stored: it ran without a guard, since the store did not respond.",
    HeaderStatus.UNGUARDED: "Not stored: it ran without a guard.",
    HeaderStatus.OBSERVED: "Not stored: its guard only observes.",
    None: "This request has no key, and needs none.",
}


class IdempotencyPanel(Panel):
    """Shows the guard of a request: where it stands, its policy, its key, the verdict, and what
    became of the response.

    It counts the statements on the records' table in the thread of the request; under ASGI, where a
    sync view runs in another thread, it counts none.
    """

    title = nav_title = "Idempotency"
    template = "django_idempotency/debug_toolbar.html"
    is_async = True

    def __init__(self, toolbar: Any, get_response: Any) -> None:
        super().__init__(toolbar, get_response)
        self._events: list[dict[str, Any]] = []
        self._facts: dict[str, Any] = {}
        self._reason = ""
        self._statements = 0
        self._seconds = 0.0
        self._began = time.perf_counter()
        self._wrapped = ExitStack()

    @property
    def nav_subtitle(self) -> str:
        stats: dict[str, Any] = self.get_stats()  # type: ignore[no-untyped-call]
        return str(stats.get("status") or "no key")

    # -------------------------------------------------------------------------------- while it runs

    def enable_instrumentation(self) -> None:
        exchange_of(self.toolbar.request).arrived = self._entered
        for event in EVENTS.values():
            event.connect(self._heard, dispatch_uid=id(self), weak=False)
        for connection in connections.all():
            self._wrapped.enter_context(connection.execute_wrapper(self._executed))

    def disable_instrumentation(self) -> None:
        for event in EVENTS.values():
            event.disconnect(dispatch_uid=id(self))
        self._wrapped.close()

    def _entered(self, entry_point: str, policy: Policy) -> None:
        self._facts |= {"entry point": entry_point}
        self._facts |= {f"policy: {name}": _brief(value) for name, value in policy.given().items()}

    def _heard(
        self, *, signal: Any, operation: Operation | None, request: Any, error: Any, **more: Any
    ) -> None:
        if getattr(request, "_request", request) is not self.toolbar.request:
            return
        after = (time.perf_counter() - self._began) * 1000
        self._events.append(
            {
                "name": signal.name,
                "after": f"{after:.1f} ms",
                "error": type(error).__name__ if error else "",
            }
        )
        self._reason = str(more.get("reason") or self._reason)
        if operation is not None:
            ticket = operation.ticket
            self._facts |= {
                "key": shortened(ticket.key),
                "scope": ticket.scope,
                "record": str(ticket.id),
                "guarantee": ticket.guarantee.value,
                "store": type(innermost(operation.store)).__name__,
                "retention": f"{ticket.ttl:g} s",
                "attempt": operation.attempt
                or (operation.record.attempt if operation.record else 0),
                "original request": rules.original_request(
                    ticket
                    if operation.run is not None or operation.record is None
                    else operation.record
                ),
            }
            if operation.waited:
                self._facts["waited"] = f"{operation.waited * 1000:.0f} ms"

    def _executed(
        self, execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any
    ) -> Any:
        if IdempotencyRecord._meta.db_table not in str(sql):
            return execute(sql, params, many, context)
        began = time.perf_counter()
        try:
            return execute(sql, params, many, context)
        finally:
            self._statements += 1
            self._seconds += time.perf_counter() - began

    # ------------------------------------------------------------------------------ when it is over

    def generate_stats(self, request: HttpRequest, response: HttpResponseBase) -> None:
        status = noted(request)
        self.record_stats(  # type: ignore[no-untyped-call]
            {
                "status": None if status is None else status.value,
                "meaning": MEANINGS[status],
                "reason": self._reason,
                "facts": list(self._facts.items()),
                "events": self._events,
                "statements": self._statements,
                "milliseconds": f"{self._seconds * 1000:.1f}",
            }
        )


def _brief(value: Any) -> str:
    """Return a field of a policy on one line: of a function, its name."""
    named = getattr(value, "__qualname__", None)
    text = repr(value) if named is None else f"{value.__module__}.{named}"
    return text if len(text) <= 80 else f"{text[:79]}…"
