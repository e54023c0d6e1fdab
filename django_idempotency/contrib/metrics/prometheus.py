"""Figures for Prometheus, by its client library: also with several processes (`PROMETHEUS_MULTIPROC_DIR`).

Names and units follow Prometheus' naming practices. No label has a key, a user, or more values than the project has
routes.
"""

from __future__ import annotations

from prometheus_client import Counter, Histogram

from ...instrumentation.meters import Facts, Meter, Source

_SOURCE = ("entry_point", "route", "store")
#: Seconds. A verb of a store takes a tenth of a millisecond in memory, and seconds while a server fails over.
_QUICK = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_SLOW = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)

REQUESTS = Counter("django_idempotency_requests", "Requests and calls by what became of them.", (*_SOURCE, "outcome"))
WAIT = Histogram("django_idempotency_wait_duration_seconds", "How long duplicates waited.", _SOURCE, buckets=_SLOW)
LEASE_LOST = Counter("django_idempotency_lease_lost", "Records that their owner could not settle in time.", _SOURCE)
STORE_OPERATION = Histogram(
    "django_idempotency_store_operation_duration_seconds",
    "How long the verbs of a store took.",
    ("store", "operation"),
    buckets=_QUICK,
)
OUTBOX_MESSAGES = Counter("django_idempotency_outbox_messages", "Messages that a relay tried.", ("outcome",))
OUTBOX_LAG = Histogram(
    "django_idempotency_outbox_lag_seconds", "From the sending of a message to its publishing.", buckets=_SLOW
)
STEPS = Counter("django_idempotency_steps", "Steps of operations by what became of them.", ("outcome",))
OUTGOING_CALLS = Counter(
    "django_idempotency_outgoing_calls", "Calls to providers by how they ended.", ("provider", "outcome")
)
DUPLICATES_FOUND = Counter("django_idempotency_duplicates_found", "Suspects that a search found.", ("model",))

AUDIT_FAILURES = Counter("django_idempotency_audit_failures", "Events that the audit trail lacks.")


class PrometheusMeter(Meter):
    """Counts in the process's default registry, which `/metrics` of the project exposes."""

    def request(self, source: Source, outcome: str, facts: Facts | None) -> None:
        REQUESTS.labels(source.entry_point, source.route, source.store, outcome).inc()

    def waited(self, source: Source, seconds: float) -> None:
        WAIT.labels(source.entry_point, source.route, source.store).observe(seconds)

    def lease_lost(self, source: Source) -> None:
        LEASE_LOST.labels(source.entry_point, source.route, source.store).inc()

    def store_operation(self, store: str, operation: str, seconds: float) -> None:
        STORE_OPERATION.labels(store, operation).observe(seconds)

    def published(self, outcome: str, lag: float) -> None:
        OUTBOX_MESSAGES.labels(outcome).inc()
        if outcome == "published":
            OUTBOX_LAG.observe(lag)

    def step(self, outcome: str) -> None:
        STEPS.labels(outcome).inc()

    def outgoing(self, provider: str, outcome: str) -> None:
        OUTGOING_CALLS.labels(provider, outcome).inc()

    def duplicate_found(self, model: str) -> None:
        DUPLICATES_FOUND.labels(model).inc()

    def audit_failed(self) -> None:
        AUDIT_FAILURES.inc()
