"""The claim after the run finds what a guard would have decided."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_idempotency.contrib.observe.observing import foreseen
from django_idempotency.core.records import Record
from django_idempotency.core.rules import Busy, Execute, Mismatch, Replay, Verdict
from tests.core.test_rules import CHANGED, COMPLETED, HOUR, OUTCOME, RUNNING, TICKET, record


@pytest.mark.parametrize(
    ("known", "took", "verdict"),
    [
        # Its own claim.
        (
            record(status=RUNNING, lease=HOUR, owner=TICKET.owner),
            1.0,
            Execute(attempt=3),
        ),
        (record(status=RUNNING, lease=HOUR), 1.0, Busy(retry_after=3600)),
        (record(status=COMPLETED, digest=CHANGED), 1.0, Mismatch()),
        # Completed a minute before it was read.
        (record(status=COMPLETED), 59.0, Replay(outcome=OUTCOME, attempt=3)),
        # In that moment, as far as clocks tell.
        (
            record(status=COMPLETED),
            60.009,
            Replay(outcome=OUTCOME, attempt=3),
        ),
        (record(status=COMPLETED), 61.0, Busy(retry_after=1)),  # began before: both were under way
    ],
)
def test_foreseen(known: Record, took: float, verdict: Verdict) -> None:
    """A request that ran without a guard is judged by the time at which it began."""
    known = known._replace(
        completed_at=None if known.status is RUNNING else known.read_at - timedelta(minutes=1)
    )
    assert foreseen(known, TICKET, took=took) == verdict
