"""Each step is counted by what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from django_idempotency.contrib.steps import UndoOn
from django_idempotency.contrib.steps.journal import STEPS
from django_idempotency.errors import OperationCancelled
from django_idempotency.instrumentation.meters import Metric

from ...functions.helpers import Clock
from ...support.meters import RecordingMeter, installed
from .test_by_hand import hold, undo
from .test_resuming import booking, guarded, operation
from .test_undoing import saga
from .work import PROVIDER, Declined

pytestmark = pytest.mark.django_db


class StepsMeter(RecordingMeter):
    """Remembers the outcomes of steps."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[str] = []

    def record(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        super().record(metric, value, labels)
        if metric is STEPS:
            self.steps.append(labels["outcome"])


@pytest.fixture
def counted() -> Any:
    meter = StepsMeter()
    with installed(meter):
        yield meter.steps


def test_executed_failed_and_skipped(clock: Clock, counted: list[str]) -> None:
    """An attempt that continues skips what is done. A replay comes to no step."""
    book = guarded(booking)
    PROVIDER.fails["book"] = TimeoutError()
    with pytest.raises(TimeoutError):
        book("visa")
    assert counted == ["executed", "executed", "failed"]
    PROVIDER.fails.clear()
    counted.clear()
    book("visa")
    book("visa")
    assert counted == ["skipped", "skipped", "executed"]


def test_undone(clock: Clock, counted: list[str]) -> None:
    """A kept exception is a failure, and each undo is counted."""
    PROVIDER.fails.update(charge=Declined(), release=TimeoutError())
    with pytest.raises(Declined):
        guarded(saga, extensions=[UndoOn(Declined)])("visa")
    assert counted == ["executed", "executed", "failed", "not_undone", "undone"]
    PROVIDER.fails.clear()
    counted.clear()
    undo()
    assert counted == ["undone"]


def test_in_doubt(clock: Clock, counted: list[str]) -> None:
    book = hold()
    assert counted == ["executed", "executed", "failed", "skipped", "skipped", "in_doubt"]
    undo()
    with pytest.raises(OperationCancelled):
        book("visa")
    assert counted[6:] == ["undone"] * 3


def test_a_block(clock: Clock, counted: list[str]) -> None:
    """It counts as a function does."""

    def body(card: str) -> Any:
        with operation().step("charge") as step:
            if not step.done:
                step.result = 1
        raise TimeoutError

    book = guarded(body)
    for _ in range(2):
        with pytest.raises(TimeoutError):
            book("visa")
    assert counted == ["executed", "skipped"]
