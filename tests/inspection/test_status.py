"""What a record's status is called, from its stored status and its deadlines."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_idempotency.core.records import (
    CANCELLATION,
    MISSING,
    UNDONE,
    Guarantee,
    Outcome,
    OutcomeKind,
    Status,
)
from django_idempotency.inspection.status import display_status
from django_idempotency.testing.tickets import make_ticket

from ..support.fakes import record_of

LEASE, ATOMIC = {"guarantee": Guarantee.LEASE}, {"guarantee": Guarantee.ATOMIC}


@pytest.mark.parametrize(
    ("status", "ticket", "lapsed", "digest", "shown"),
    [
        (Status.FREE, {}, 0, b"", "free"),
        (Status.FREE, {}, 0, b"d", "failed"),
        (Status.RUNNING, LEASE, -10, b"d", "running"),
        (Status.RUNNING, LEASE, 0, b"d", "abandoned"),
        (Status.RUNNING, LEASE, 10, b"d", "abandoned"),
        (Status.RUNNING, ATOMIC, -1, b"d", "running"),
        (Status.RUNNING, ATOMIC, 59, b"d", "running"),  # its transaction may hold the row
        (Status.RUNNING, ATOMIC, 60, b"d", "abandoned"),
        (Status.COMPLETED, {}, 10, b"d", "completed"),
    ],
)
def test_every_status(
    status: Status, ticket: Any, lapsed: float, digest: bytes, shown: str
) -> None:
    """`lapsed`: seconds since the lease ended."""
    record = record_of(make_ticket(**ticket))
    record = record._replace(
        status=status,
        digest=digest,
        lease_until=record.read_at - timedelta(seconds=lapsed),
        outcome=None,
    )
    assert display_status(record).value == shown


@pytest.mark.parametrize(
    ("outcome", "shown"),
    [
        (OutcomeKind.HELD.outcome(), "held"),
        (CANCELLATION, "cancelled"),
        (UNDONE, "cancelled"),
        (UNDONE._replace(body=MISSING), "cancelled"),  # as the admin's list reads it
        (OutcomeKind.RESULT.outcome(b"1"), "completed"),
        (Outcome(status=409, headers=(("Content-Type", "text/plain"),), body=b""), "completed"),
    ],
)
def test_what_is_completed(outcome: Outcome, shown: str) -> None:
    """What a person decides, and what has given up, has a word of its own."""
    record = record_of(make_ticket())._replace(status=Status.COMPLETED, outcome=outcome)
    assert display_status(record).value == shown


def test_expired_goes_first() -> None:
    record = record_of(make_ticket())
    ended = record.read_at - timedelta(seconds=1)
    assert display_status(record._replace(status=Status.FREE, expires_at=ended)).value == "expired"
