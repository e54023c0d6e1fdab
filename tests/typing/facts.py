"""Facts are frozen, and made by keyword."""

from __future__ import annotations

from typing import assert_type

from django_idempotency.core.records import Record, Ticket
from django_idempotency.core.rules import (
    Busy,
    Contended,
    Execute,
    Late,
    Mismatch,
    Replay,
    Unreadable,
    read,
)


def test_frozen(ticket: Ticket) -> None:
    ticket.lease = 1.0  # type: ignore[misc]


def test_complete() -> None:
    Busy()  # type: ignore[call-arg]


def test_by_keyword() -> None:
    Busy(1)  # type: ignore[call-arg]


def test_changed(ticket: Ticket) -> None:
    assert_type(ticket._replace(lease=1.0), Ticket)


def test_a_verdict_is_one_of_seven(record: Record, ticket: Ticket) -> None:
    assert_type(
        read(record, ticket), Execute | Replay | Busy | Contended | Mismatch | Late | Unreadable
    )
