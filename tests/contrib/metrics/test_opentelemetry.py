"""OpenTelemetry, with its SDK: instruments, span attributes, and the link from a replay to the
first request's span.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from django_idempotency import idempotent_function
from django_idempotency.contrib.metrics.opentelemetry import OpenTelemetryMeter
from django_idempotency.core.records import TRACE
from django_idempotency.models import IdempotencyRecord

from ...entry_points.conftest import CHARGE, KEY
from ...support.meters import installed

pytestmark = pytest.mark.django_db(transaction=True)

EXPORTER = InMemorySpanExporter()
READER = InMemoryMetricReader()


@pytest.fixture(scope="module", autouse=True)
def _providers() -> None:
    """The providers are global, and may be set once."""
    tracing = TracerProvider()
    tracing.add_span_processor(SimpleSpanProcessor(EXPORTER))
    trace.set_tracer_provider(tracing)
    metrics.set_meter_provider(MeterProvider([READER]))


@pytest.fixture(autouse=True)
def _meter() -> Iterator[None]:
    EXPORTER.clear()
    with installed(OpenTelemetryMeter()):
        yield


def points(name: str) -> list[Any]:
    data = READER.get_metrics_data()
    assert data is not None
    return [
        (metric, point)
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
        if metric.name == f"django_idempotency.{name}"
    ]


def spanned(name: str, call: Any) -> Any:
    """Do it inside a span, as an instrumentation of Django's would."""
    with trace.get_tracer(__name__).start_as_current_span(name):
        return call()


def spans() -> dict[str, Any]:
    return {span.name: span for span in EXPORTER.get_finished_spans()}


def test_a_replays_span_links_to_the_first_requests(user: User) -> None:
    """Both have the outcome, and the same hash of the key; no key, no user."""
    client = Client()
    client.force_login(user)

    def post() -> Any:
        return client.post(
            "/plain/charges/", CHARGE, "application/json", headers={"Idempotency-Key": KEY}
        )

    first, again = spanned("first", post), spanned("again", post)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert TRACE not in again.headers
    assert dict(first.items()).keys() >= {"Content-Type"}
    found = spans()
    assert found["first"].attributes["django_idempotency.outcome"] == "executed"
    assert found["first"].attributes["django_idempotency.attempt"] == 1
    assert found["again"].attributes["django_idempotency.outcome"] == "replayed"
    hashes = {span.attributes["django_idempotency.key_hash"] for span in found.values()}
    assert hashes == {IdempotencyRecord.objects.get().pk.hex[:12]}
    (link,) = found["again"].links
    assert link.context.span_id == found["first"].get_span_context().span_id
    assert link.context.trace_id == found["first"].get_span_context().trace_id
    assert not found["first"].links
    told = "".join(str(span.attributes) for span in found.values())
    assert KEY not in told
    assert user.get_username() not in told


@idempotent_function(key="order", guarantee="lease")
def charge(order: str) -> str:
    if order == "bad":
        raise LookupError(order)
    return order


def test_functions_link_too() -> None:
    """The stored result is still read as a result."""
    assert spanned("first", lambda: charge("o-1")) == "o-1"
    assert spanned("again", lambda: charge("o-1")) == "o-1"
    found = spans()
    assert [link.context.span_id for link in found["again"].links] == [
        found["first"].get_span_context().span_id
    ]


def test_without_a_span(user: User) -> None:
    """Nothing is remembered, and counters count all the same."""
    charge("o-2")
    assert TRACE not in IdempotencyRecord.objects.get().response_headers
    ours = {"django_idempotency.outcome": "executed", "code.function.name": f"{__name__}.charge"}
    ((metric, point),) = [
        each for each in points("requests") if ours.items() <= dict(each[1].attributes).items()
    ]
    assert metric.unit == "{request}"
    assert point.attributes["django_idempotency.entry_point"] == "function"


def test_units_and_names() -> None:
    """Durations are histograms in seconds; names have neither a unit nor _total."""
    charge("o-3")
    (metric, point), *_ = points("store.operation.duration")
    assert metric.unit == "s"
    assert set(point.attributes) == {"django_idempotency.store", "django_idempotency.operation"}
