"""Figures and spans for OpenTelemetry, by its API alone: the project's SDK decides where they go.

There is no semantic convention for idempotency, so all names begin with ours. A replay's span links to the span of the
request that did the work.
"""

from __future__ import annotations

from opentelemetry import metrics, trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ...instrumentation.meters import Facts, Meter, Source

_NAME = "django_idempotency"


class OpenTelemetryMeter(Meter):
    """Counts by the global meter provider, and describes the current span of the global tracer provider."""

    def __init__(self) -> None:
        made = metrics.get_meter(_NAME)
        self._requests = made.create_counter(
            f"{_NAME}.requests", unit="{request}", description="Requests and calls by what became of them."
        )
        self._wait = made.create_histogram(
            f"{_NAME}.wait.duration", unit="s", description="How long duplicates waited."
        )
        self._lease_lost = made.create_counter(
            f"{_NAME}.lease.lost", unit="{record}", description="Records that their owner could not settle in time."
        )
        self._store = made.create_histogram(
            f"{_NAME}.store.operation.duration", unit="s", description="How long the verbs of a store took."
        )
        self._messages = made.create_counter(
            f"{_NAME}.outbox.messages", unit="{message}", description="Messages that a relay tried."
        )
        self._lag = made.create_histogram(
            f"{_NAME}.outbox.lag", unit="s", description="From the sending of a message to its publishing."
        )
        self._steps = made.create_counter(
            f"{_NAME}.steps", unit="{step}", description="Steps of operations by what became of them."
        )
        self._outgoing = made.create_counter(
            f"{_NAME}.outgoing.calls", unit="{call}", description="Calls to providers by how they ended."
        )
        self._duplicates = made.create_counter(
            f"{_NAME}.duplicates.found", unit="{suspect}", description="Suspects that a search found."
        )
        self._audit_failures = made.create_counter(
            f"{_NAME}.audit.failures", unit="{event}", description="Events that the audit trail lacks."
        )
        self._propagator = TraceContextTextMapPropagator()

    def request(self, source: Source, outcome: str, facts: Facts | None) -> None:
        self._requests.add(1, {**_attributes(source), f"{_NAME}.outcome": outcome})
        span = trace.get_current_span()
        if not span.is_recording():
            return
        span.set_attribute(f"{_NAME}.outcome", outcome)
        if facts is None:
            return
        span.set_attributes({f"{_NAME}.key_hash": facts.key_hash, f"{_NAME}.attempt": facts.attempt})
        if facts.first_trace:
            context = self._propagator.extract({"traceparent": facts.first_trace})
            first = trace.get_current_span(context).get_span_context()
            if first.is_valid:
                span.add_link(first, {f"{_NAME}.link": "original_request"})

    def waited(self, source: Source, seconds: float) -> None:
        self._wait.record(seconds, _attributes(source))

    def lease_lost(self, source: Source) -> None:
        self._lease_lost.add(1, _attributes(source))

    def store_operation(self, store: str, operation: str, seconds: float) -> None:
        self._store.record(seconds, {f"{_NAME}.store": store, f"{_NAME}.operation": operation})

    def published(self, outcome: str, lag: float) -> None:
        self._messages.add(1, {f"{_NAME}.outcome": outcome})
        if outcome == "published":
            self._lag.record(lag)

    def step(self, outcome: str) -> None:
        self._steps.add(1, {f"{_NAME}.outcome": outcome})

    def outgoing(self, provider: str, outcome: str) -> None:
        self._outgoing.add(1, {f"{_NAME}.provider": provider, f"{_NAME}.outcome": outcome})

    def duplicate_found(self, model: str) -> None:
        self._duplicates.add(1, {f"{_NAME}.model": model})

    def audit_failed(self) -> None:
        self._audit_failures.add(1)

    def current_trace(self) -> str:
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier)
        return carrier.get("traceparent", "")


def _attributes(source: Source) -> dict[str, str]:
    found = {f"{_NAME}.entry_point": source.entry_point, f"{_NAME}.store": source.store}
    # The only name of a URL pattern that other instrumentations know; a function has none.
    name = "code.function.name" if source.entry_point == "function" else "http.route"
    return {**found, name: source.route}
