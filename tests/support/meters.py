"""A meter that remembers what it was given."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from django_idempotency import conf
from django_idempotency.instrumentation.meters import Facts, Meter, Metric, Source, meters


class RecordingMeter(Meter):
    def __init__(self) -> None:
        self.requests: list[tuple[Source, str, Facts | None]] = []
        #: Name of a metric → the values that were recorded, and their labels.
        self.recorded: defaultdict[str, list[tuple[float, Mapping[str, str]]]] = defaultdict(list)
        self.trace = ""

    def record(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        assert value >= 0
        assert set(labels) == set(metric.labels)
        self.recorded[metric.name].append((value, labels))

    def request(self, source: Source, outcome: str, facts: Facts | None) -> None:
        self.requests.append((source, outcome, facts))

    def current_trace(self) -> str:
        return self.trace

    def values(self, name: str) -> list[float]:
        return [value for value, _ in self.recorded[name]]

    def labels(self, name: str) -> list[tuple[str, ...]]:
        """Return the values of the labels of each record of a metric."""
        return [tuple(labels.values()) for _, labels in self.recorded[name]]

    @property
    def operations(self) -> list[tuple[str, ...]]:
        """What was measured of stores: alias and verb."""
        return self.labels("store.operation.duration")

    @property
    def outcomes(self) -> list[str]:
        """What was counted since the last look."""
        found = [outcome for _, outcome, _ in self.requests]
        assert self.labels("requests")[-len(found) :] == [
            (*source, outcome) for source, outcome, _ in self.requests
        ]
        self.requests.clear()
        self.recorded["requests"].clear()
        return found


@contextmanager
def installed(*made: Meter) -> Iterator[None]:
    """Measure with these meters alone."""
    before, meters.active = meters.active, made
    conf.recompile()
    try:
        yield
    finally:
        meters.active = before
        conf.recompile()
