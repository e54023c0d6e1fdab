"""Figures for Prometheus, by its client library: also with several processes
(`PROMETHEUS_MULTIPROC_DIR`).

Names and units follow Prometheus' naming practices.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from prometheus_client import Counter, Histogram

from ...api import Meter, Metric


class PrometheusMeter(Meter):
    """Counts in the process's default registry, which `/metrics` of the project exposes."""

    def declare(self, metric: Metric) -> None:
        collector(metric)

    def record(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        made = collector(metric)
        series = made.labels(**labels) if labels else made
        (series.observe if metric.buckets else series.inc)(value)


@cache
def collector(metric: Metric) -> Any:
    """Return the collector of a metric. It is registered once for each process."""
    name = f"django_idempotency_{metric.name.replace('.', '_')}"
    if metric.buckets:
        return Histogram(f"{name}_seconds", metric.about, metric.labels, buckets=metric.buckets)
    return Counter(name, metric.about, metric.labels)
