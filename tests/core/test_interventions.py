"""What an operator's change does to a record in each state, and the name of its outcome."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from django_idempotency.core import interventions, rules
from django_idempotency.core.at_rest import erasure
from django_idempotency.core.failures import failed_with
from django_idempotency.core.hashing import next_operation
from django_idempotency.core.interventions import Change, Intervention
from django_idempotency.core.records import Record, Settlement
from django_idempotency.testing.tickets import NOW
from tests.core.test_rules import (
    COMPLETED,
    FIRST,
    FREE,
    HOUR,
    OTHER,
    OUTCOME,
    RUNNING,
    SAME,
    UNBOUND,
    ZERO,
    record,
)

DONE, BUSY, ALREADY, GONE = (
    Intervention.DONE,
    Intervention.BUSY,
    Intervention.ALREADY,
    Intervention.GONE,
)

KEPT = Settlement(
    status=COMPLETED,
    fence=OTHER,
    attempt=3,
    digest=SAME,
    operation=FIRST,
    outcome=OUTCOME,
    expires_in=0,
)
RELEASED = KEPT._replace(status=FREE, outcome=None, expires_in=None)
ERASED = KEPT._replace(status=FREE, digest=UNBOUND, outcome=None)

FAILED = failed_with(ValueError(), at=NOW)

#: A record → what a release, an expiry and an erasure write to it, or why they write nothing.
TABLE: list[
    tuple[
        str,
        Record | None,
        Settlement | Intervention,
        Settlement | Intervention,
        Settlement | Intervention,
    ]
] = [
    ("none", None, GONE, GONE, GONE),
    ("completed", record(status=COMPLETED), RELEASED, KEPT, ERASED),
    (
        "damaged",
        record(status=COMPLETED, outcome=None),
        RELEASED,
        KEPT._replace(outcome=None),
        ERASED,
    ),
    ("completed, expired", record(status=COMPLETED, expiry=-HOUR), ALREADY, ALREADY, ERASED),
    ("free", record(status=FREE), ALREADY, KEPT._replace(status=FREE, outcome=None), ERASED),
    (
        "failed",
        record(status=FREE, outcome=FAILED),
        ALREADY,
        KEPT._replace(status=FREE, outcome=FAILED),
        ERASED,
    ),
    ("free, expired", record(status=FREE, expiry=-HOUR), ALREADY, ALREADY, ERASED),
    ("erased", record(status=FREE, digest=UNBOUND, expiry=ZERO), ALREADY, ALREADY, ALREADY),
    ("running", record(lease=HOUR), BUSY, BUSY, BUSY),
    ("running beyond its expiry", record(lease=HOUR, expiry=-HOUR), BUSY, BUSY, BUSY),
    ("lapsed", record(), RELEASED, KEPT._replace(status=RUNNING, outcome=None), ERASED),
    ("lapsed, expired", record(expiry=-HOUR), ALREADY, ALREADY, ERASED),
]


@pytest.mark.parametrize(
    ("_name", "known", "released", "expired", "erased"), TABLE, ids=[row[0] for row in TABLE]
)
def test_what_is_written(
    _name: str,
    known: Record | None,
    released: Settlement | Intervention,
    expired: Settlement | Intervention,
    erased: Settlement | Intervention,
) -> None:
    """A live owner's record is refused, and one that has that state already is left as it is."""
    for change, expected in (
        (interventions.released, released),
        (interventions.expired_now, expired),
        (interventions.erased, erased),
    ):
        decided = interventions.intervention(known, change)
        if isinstance(expected, Intervention):
            assert decided is expected
        else:
            assert decided == Change(record=known or record(), settlement=expected, outcome=DONE)


def test_a_failure_is_forgotten_as_a_record_without_a_response() -> None:
    """A note on a failure is not a response: what stays of it is 410, as of any key without one."""
    forgotten = interventions.forgotten(record(status=FREE, outcome=FAILED))
    assert isinstance(forgotten, Settlement)
    assert forgotten.outcome == erasure(None)


def test_a_late_failure_never_releases_what_was_completed() -> None:
    """An owner whose own settle was written releases nothing afterwards, with or without a note on
    the error.
    """
    ours = record(status=COMPLETED, owner=HAND.owner)
    for outcome in (None, FAILED):
        assert not rules.untouched(ours, record(), HAND, RELEASED._replace(outcome=outcome))


@pytest.mark.parametrize(
    "change", [interventions.released, interventions.expired_now, interventions.erased]
)
def test_a_locked_record(change: Callable[[Record], Settlement | None]) -> None:
    """A record that cannot be read because another connection has locked it is busy, not gone."""
    assert interventions.intervention(None, change, locked=True) is BUSY


HAND = record().ticket(owner=UUID(int=9))  # the operator's ticket
CHANGE = Change(record=record(), settlement=RELEASED)
NEXT = next_operation(FIRST)


@pytest.mark.parametrize(
    ("claimed", "written", "outcome"),
    [
        (record(owner=HAND.owner, attempt=4), RELEASED._replace(fence=HAND.owner), DONE),
        # an erasure of an expired record begins its next life first
        (
            record(owner=HAND.owner, attempt=1, operation=NEXT),
            RELEASED._replace(fence=HAND.owner),
            DONE,
        ),
        # it had vanished: the claim has made a new record, which must not bind a request
        (
            record(owner=HAND.owner, attempt=1, operation=UUID(int=10)),
            ERASED._replace(fence=HAND.owner, attempt=1, operation=UUID(int=10)),
            GONE,
        ),
        (record(lease=HOUR), None, BUSY),  # its owner has renewed the lease
        (record(status=COMPLETED), None, BUSY),  # its owner has settled it
        # A request has taken it over.
        (
            record(owner=UUID(int=11), lease=HOUR, attempt=4),
            None,
            BUSY,
        ),
    ],
)
def test_taken_by_hand(claimed: Record, written: Settlement | None, outcome: Intervention) -> None:
    """A running record is written only if the operator's claim has taken over the record that was
    read.
    """
    decided = interventions.taken_by_hand(CHANGE, claimed, HAND)
    if written is None:
        assert decided is outcome
    else:
        assert decided == CHANGE._replace(settlement=written, outcome=outcome)


@pytest.mark.parametrize(
    ("change", "found", "outcome"),
    [
        (CHANGE, None, GONE),
        # The driver tried again after a lost response.
        (
            CHANGE,
            record(status=FREE, owner=HAND.owner),
            DONE,
        ),
        (CHANGE, record(status=COMPLETED), BUSY),
        # A native expiry deleted what was taken over, or deleted it before.
        (
            Change(record=record(expiry=-HOUR), settlement=ERASED._replace(fence=HAND.owner)),
            None,
            DONE,
        ),
        (Change(record=record(status=COMPLETED, expiry=-HOUR), settlement=ERASED), None, GONE),
        # The record had vanished: it stays gone, whatever became of the one that the claim made.
        (
            Change(record=record(), settlement=ERASED._replace(fence=HAND.owner), outcome=GONE),
            None,
            GONE,
        ),
        (
            Change(record=record(), settlement=ERASED._replace(fence=HAND.owner), outcome=GONE),
            record(status=FREE, owner=HAND.owner),
            GONE,
        ),
    ],
)
def test_refused_by_hand(change: Change, found: Record | None, outcome: Intervention) -> None:
    """A refused write is done, busy or gone, by what is found after it."""
    assert interventions.refused_by_hand(change, found, HAND) is outcome
