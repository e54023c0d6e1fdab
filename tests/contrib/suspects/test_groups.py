"""Suspects are chains of rows that follow one another."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from django_idempotency.contrib.suspects.searching import Sighting, suspects

START = datetime(2026, 11, 23, tzinfo=timezone.utc)


def sighting(minute: int, *, follows: bool) -> Sighting:
    return Sighting(
        pk=(minute,),
        at=START + timedelta(minutes=minute),
        key=None,
        facts=(7, 2499),
        follows=follows,
    )


@pytest.mark.parametrize(
    ("rows", "since", "expected"),
    [
        ([], 0, []),
        ([(1, False), (2, True)], 0, [[1, 2]]),
        ([(1, False), (2, True), (3, True), (8, False), (9, True)], 0, [[1, 2, 3], [8, 9]]),
        ([(1, False), (2, True)], 2, [[1, 2]]),  # its last row is in the window
        ([(1, False), (2, True)], 3, []),  # an earlier search has reported it
        ([(1, False)], 0, []),  # its neighbour is behind the limit
        ([(1, True), (2, True)], 0, [[1, 2]]),
    ],
)
def test_chains(rows: list[tuple[int, bool]], since: int, expected: list[list[int]]) -> None:
    """A row that follows belongs to the one before it; a row alone is no suspect."""
    read = [sighting(minute, follows=follows) for minute, follows in rows]
    found = suspects(
        read, model="shop.Charge", names=("card", "amount"), since=START + timedelta(minutes=since)
    )
    assert [[row.pk[0] for row in each.rows] for each in found] == expected


def test_what_a_suspect_says() -> None:
    read = [sighting(1, follows=False), sighting(4, follows=True)]
    (found,) = suspects(read, model="shop.Charge", names=("card", "amount"), since=START)
    assert (found.model, found.facts) == ("shop.Charge", {"card": 7, "amount": 2499})
    assert (found.first_at, found.last_at) == (read[0].at, read[1].at)
    assert found.span == timedelta(minutes=3)
