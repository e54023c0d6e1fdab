"""The tables and the drawing of the rules match those in core/."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from uuid import UUID

import pytest

from django_idempotency.core import conclusions, rules
from django_idempotency.core.conclusions import (
    Conclusion,
    ResponseEnding,
    Rollback,
    SettledState,
    WorkResult,
)
from django_idempotency.core.records import Guarantee, Outcome, Record, Status, Ticket

from .pages import DOCS, blocks, checked, code, text

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
SECOND = timedelta(seconds=1)
LIFE = "explanation/how-it-works.md"


def test_how_a_success_ends() -> None:
    """The table equals SUCCESSES, row by row."""
    shown = {
        (WorkResult(code(ended)), Rollback(cause)): Conclusion(
            state=SettledState(code(record)),
            commit=writes.startswith("committed"),
            withheld="writes-rolled-back" in gets,
        )
        for ended, cause, record, writes, gets in checked("reference/http.md", "SUCCESSES")
    }
    assert shown == conclusions.SUCCESSES


def test_how_a_call_ends() -> None:
    """The table equals CONCLUSIONS, row by row."""
    marked = {"no": False, "yes": True}
    shown = {
        (WorkResult(code(ended)), marked[needs_rollback]): Conclusion(
            state=SettledState(code(record)), commit=writes.startswith("committed")
        )
        for ended, needs_rollback, record, writes in checked("reference/http.md", "CONCLUSIONS")
    }
    assert shown == conclusions.CONCLUSIONS


def test_how_a_call_ends_that_raised() -> None:
    """The table equals RAISED, row by row."""
    said = {"no": False, "yes": True}
    shown = {
        (said[below], said[atomic]): ResponseEnding(
            answers=ends == "its response", commit=writes == "committed"
        )
        for below, atomic, ends, writes in checked("reference/http.md", "RAISED")
    }
    assert shown == conclusions.RAISED


def test_what_becomes_of_the_record() -> None:
    """Every way to leave the record is explained."""
    assert [
        SettledState(code(row[0])) for row in checked("reference/http.md", "SettledState")
    ] == list(SettledState)


def test_dropped_statuses() -> None:
    """The refusals that are not remembered are the same here and on the page about money."""
    shown = [int(code(row[0])) for row in checked("reference/http.md", "DROPPED_STATUSES")]
    assert shown == sorted(conclusions.DROPPED_STATUSES)
    assert f"**{', '.join(map(str, shown))}** are dropped" in text("how-to/money.md")


def record(said: str) -> Record:
    """Make the record that a row of the table describes."""
    status, *more = said.split(", ")
    return Record(
        id=UUID(int=1),
        scope="user:1",
        key="k",
        digest=b"" if "after a refusal" in more else b"same",
        status=Status[status.upper()],
        owner=UUID(int=2),
        attempt=1,
        guarantee=Guarantee.ATOMIC,
        lease_until=NOW + (SECOND if "live" in more else -SECOND),
        created_at=NOW - SECOND,
        completed_at=None,
        expires_at=NOW + (-SECOND if "expired" in more else SECOND),
        purge_at=NOW + SECOND,
        read_at=NOW,
        operation=UUID(int=4),
        outcome=Outcome(status=201) if status == "completed" else None,
    )


def ticket(digest: bytes) -> Ticket:
    return Ticket(
        id=UUID(int=1),
        scope="user:1",
        key="k",
        digest=digest,
        owner=UUID(int=3),
        now=NOW,
        lease=1,
        ttl=60,
        guarantee=Guarantee.ATOMIC,
    )


@pytest.mark.parametrize(("said", "same", "other"), checked(LIFE, "read"))
def test_what_a_request_meets(said: str, same: str, other: str) -> None:
    """The table matches `rules.read`, for the same request and another."""
    verdicts = [
        type(rules.read(record(said), ticket(digest))).__name__ for digest in (b"same", b"other")
    ]
    assert verdicts == [code(same), code(other)]


def test_the_table_is_complete() -> None:
    """The table has every state, with a live and a lapsed lease, expired or not."""
    seen = {
        (found.status, rules.leased(found), found.expires_at <= NOW)
        for found in map(record, (r[0] for r in checked(LIFE, "read")))
    }
    assert seen == {
        (status, leased, expired)
        for status in Status
        for leased in ((False, True) if status is Status.RUNNING else (False,))
        for expired in (False, True)
    }


def test_the_drawing_has_every_state() -> None:
    """The drawing has no other state."""
    (drawing,) = (block.code for block in blocks(DOCS / LIFE) if "(no record)" in block.code)
    assert {word for word in drawing.split() if word.isupper()} == {
        status.name for status in Status
    }
