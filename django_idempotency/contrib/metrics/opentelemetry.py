"""Figures and spans for OpenTelemetry, by its API alone: the project's SDK decides where they go.

There is no semantic convention for idempotency, so all names begin with ours. A replay's span links
to the span of the request that did the work.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ...api import Facts, Meter, Metric, Source

_NAME = "django_idempotency"


class OpenTelemetryMeter(Meter):
    """Counts by the global meter provider, and describes the current span of the global tracer
    provider.
    """

    def __init__(self) -> None:
        self._meter = metrics.get_meter(_NAME)
        self._instruments: dict[Metric, Any] = {}
        self._propagator = TraceContextTextMapPropagator()

    def declare(self, metric: Metric) -> None:
        make = self._meter.create_histogram if metric.buckets else self._meter.create_counter
        self._instruments[metric] = make(
            f"{_NAME}.{metric.name}", unit=metric.unit, description=metric.about
        )

    def record(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        if metric not in self._instruments:
            self.declare(metric)
        instrument = self._instruments[metric]
        (instrument.record if metric.buckets else instrument.add)(value, _attributes(labels))

    def request(self, source: Source, outcome: str, facts: Facts | None) -> None:
        span = trace.get_current_span()
        if not span.is_recording():
            return
        span.set_attribute(f"{_NAME}.outcome", outcome)
        if facts is None:
            return
        span.set_attributes(
            {f"{_NAME}.key_hash": facts.key_hash, f"{_NAME}.attempt": facts.attempt}
        )
        if facts.first_trace:
            context = self._propagator.extract({"traceparent": facts.first_trace})
            first = trace.get_current_span(context).get_span_context()
            if first.is_valid:
                span.add_link(first, {f"{_NAME}.link": "original_request"})

    def current_trace(self) -> str:
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier)
        return carrier.get("traceparent", "")


def _attributes(labels: Mapping[str, str]) -> dict[str, str]:
    # The only name of a URL pattern that other instrumentations know; a function has none.
    route = "code.function.name" if labels.get("entry_point") == "function" else "http.route"
    return {
        route if name == "route" else f"{_NAME}.{name}": value for name, value in labels.items()
    }
