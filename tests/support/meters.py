"""A meter that remembers what it was given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from django_idempotency.instrumentation.meters import Facts, Meter, Source, meters


@dataclass
class RecordingMeter(Meter):
    requests: list[tuple[Source, str, Facts | None]] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    lost: list[Source] = field(default_factory=list)
    operations: list[tuple[str, str]] = field(default_factory=list)
    messages: list[tuple[str, float]] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    calls: list[tuple[str, str]] = field(default_factory=list)
    trace: str = ""

    def request(self, source: Source, outcome: str, facts: Facts | None) -> None:
        self.requests.append((source, outcome, facts))

    def waited(self, source: Source, seconds: float) -> None:
        self.waits.append(seconds)

    def lease_lost(self, source: Source) -> None:
        self.lost.append(source)

    def store_operation(self, store: str, operation: str, seconds: float) -> None:
        assert seconds >= 0
        self.operations.append((store, operation))

    def published(self, outcome: str, lag: float) -> None:
        self.messages.append((outcome, lag))

    def step(self, outcome: str) -> None:
        self.steps.append(outcome)

    def outgoing(self, provider: str, outcome: str) -> None:
        self.calls.append((provider, outcome))

    def duplicate_found(self, model: str) -> None:
        self.duplicates.append(model)

    def current_trace(self) -> str:
        return self.trace

    @property
    def outcomes(self) -> list[str]:
        """What was counted since the last look."""
        found = [outcome for _, outcome, _ in self.requests]
        self.requests.clear()
        return found


@contextmanager
def installed(*made: Meter) -> Iterator[None]:
    """Measure with these meters alone."""
    before, meters.active = meters.active, made
    try:
        yield
    finally:
        meters.active = before
