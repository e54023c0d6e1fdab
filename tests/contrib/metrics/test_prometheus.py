"""Prometheus: the published names, labels and units; and several gunicorn workers scraped by a real
server.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import httpx
import pytest
from django.contrib.auth.models import User
from django.test import Client
from prometheus_client import REGISTRY

from django_idempotency.contrib.audit.writing import FAILURES
from django_idempotency.contrib.client.ledger import CALLS
from django_idempotency.contrib.metrics.prometheus import PrometheusMeter
from django_idempotency.contrib.outbox.relaying import LAG, MESSAGES
from django_idempotency.contrib.steps.journal import STEPS
from django_idempotency.contrib.suspects.searching import FOUND
from django_idempotency.instrumentation.metered import STORE_OPERATION
from django_idempotency.instrumentation.meters import (
    LEASE_LOST,
    METRICS,
    WAIT,
    Metric,
    Source,
    meters,
)

from ...entry_points.conftest import CHARGE, KEY
from ...faults.plans import FOLDER, until
from ...faults.servers import gunicorn
from ...support import services
from ...support.factories import TokenFactory
from ...support.meters import installed
from ...support.prometheus import scraping

SOURCE = Source(entry_point="decorator", route="orders/", store="default")
LABELS = {"entry_point": "decorator", "route": "orders/", "store": "default"}


def sample(name: str, labels: dict[str, str] | None = None) -> float:
    return REGISTRY.get_sample_value(f"django_idempotency_{name}", labels or {}) or 0.0


def test_names_labels_and_units() -> None:
    """Counters end in _total, durations are seconds, and no label is added or renamed without this
    test.
    """
    counted = LABELS | {"outcome": "replayed"}
    operation = {"store": "default", "operation": "claim"}
    before = (
        sample("requests_total", counted),
        sample("store_operation_duration_seconds_sum", operation),
    )
    with installed(PrometheusMeter()):
        meters.request(SOURCE, "replayed")
        WAIT.record(2.0, **LABELS)
        LEASE_LOST.record(**LABELS)
        STORE_OPERATION.record(0.25, **operation)
        MESSAGES.record(outcome="failed")
        LAG.record(3.0)
        FOUND.record(model="payments.Charge")
        STEPS.record(outcome="undone")
        CALLS.record(provider="stripe", outcome="succeeded")
        FAILURES.record()
    assert sample("requests_total", counted) == before[0] + 1
    assert sample("wait_duration_seconds_sum", LABELS) >= 2
    assert sample("lease_lost_total", LABELS) >= 1
    assert sample("store_operation_duration_seconds_sum", operation) == pytest.approx(
        before[1] + 0.25
    )
    assert sample("outbox_lag_seconds_sum") >= 3
    assert sample("outbox_messages_total", {"outcome": "failed"}) >= 1
    assert sample("duplicates_found_total", {"model": "payments.Charge"}) >= 1
    assert sample("steps_total", {"outcome": "undone"}) >= 1
    assert sample("outgoing_calls_total", {"provider": "stripe", "outcome": "succeeded"}) >= 1
    assert sample("audit_failures_total") >= 1


def test_a_metric_without_labels_is_exported_before_it_is_recorded() -> None:
    """An alert sees its first increase; also in a module that is loaded after the meter was made."""
    with installed(PrometheusMeter()):
        METRICS.remove(Metric("tests.declared", "What nobody records."))
    assert REGISTRY.get_sample_value("django_idempotency_tests_declared_total") == 0.0


@pytest.mark.django_db(transaction=True)
def test_a_request_is_counted_in_the_registry(user: User) -> None:
    labels = {
        "entry_point": "middleware",
        "route": "middleware/charges/",
        "store": "default",
        "outcome": "invalid",
    }
    before = sample("requests_total", labels)
    with installed(PrometheusMeter()):
        client = Client()
        client.force_login(user)
        client.post(
            "/middleware/charges/", {}, "application/json", headers={"Idempotency-Key": "a, b"}
        )
    assert sample("requests_total", labels) == before + 1


# -------------------------------------------------------------------------------- several processes


def queried(prometheus: str, expression: str) -> dict[str, float]:
    """Return the value of an expression by outcome."""
    try:
        with urlopen(
            f"{prometheus}/api/v1/query?{urlencode({'query': expression})}", timeout=5
        ) as response:
            found = json.load(response)["data"]["result"]
    except OSError:
        return {}
    return {each["metric"].get("outcome", ""): float(each["value"][1]) for each in found}


@pytest.mark.slow
@pytest.mark.any_database
@services.needs_prometheus
@pytest.mark.django_db(transaction=True)
def test_workers_of_gunicorn_are_counted_together(tmp_path: Path, user: User) -> None:
    """Each worker counts in a file of its own, and a real Prometheus scrapes the sum, dead workers
    included.
    """
    figures, token = tmp_path / "figures", TokenFactory(user=user).key
    figures.mkdir()
    headers = {"Authorization": f"Token {token}", "Idempotency-Key": KEY}
    environment = {
        "METRICS": "django_idempotency.contrib.metrics.prometheus.PrometheusMeter",
        "PROMETHEUS_MULTIPROC_DIR": str(figures),
        FOLDER: str(tmp_path),
    }
    with gunicorn(tmp_path, **environment) as server:
        url = f"{server.url}/api/charges/"
        answers = [
            httpx.post(url, json=CHARGE, headers=headers, trust_env=False).status_code
            for _ in range(20)
        ]
        assert answers == [201] * 20
        workers = {int(path.stem) for path in tmp_path.glob("*.worker")}
        os.kill(workers.pop(), signal.SIGKILL)
        server.await_ready()
        assert (
            httpx.post(
                url, json={**CHARGE, "amount": 1}, headers=headers, trust_env=False
            ).status_code
            == 422
        )
        with scraping(
            {server.url.removeprefix("http://"): "/metrics/"}, tmp_path, every="100ms"
        ) as prometheus:
            expression = "sum by (outcome) (django_idempotency_requests_total)"
            expected = {"executed": 1, "replayed": 19, "mismatch": 1}
            until(lambda: queried(prometheus, expression) == expected, f"Prometheus has {expected}")
