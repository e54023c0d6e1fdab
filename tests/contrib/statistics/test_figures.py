"""Figures over time: which part of a period counts a record, and what a sample says about all."""

from __future__ import annotations

from datetime import timedelta
from hashlib import sha256
from uuid import UUID

import pytest

from django_idempotency.contrib.statistics.figures import PERIODS, Fact, Series, over, share
from django_idempotency.testing.tickets import NOW

MINUTE = timedelta(minutes=1)


def fact(ago: timedelta, status: int | None = None, *, failed: bool = False) -> Fact:
    at = NOW - ago
    done = at if status is not None else None
    return Fact(
        created_at=at, completed_at=done, response_status=status, failed_at=at if failed else None
    )


def test_parts_of_an_hour() -> None:
    """A moment counts in its part: the youngest is the last one, and what is older than the period
    counts in none.
    """
    facts = [
        fact(0 * MINUTE),
        fact(MINUTE / 2),
        fact(MINUTE * 59.5),
        fact(60 * MINUTE),
        fact(61 * MINUTE),
    ]
    new = next(iter(over(PERIODS[0], facts, NOW)))
    assert (new.parts[0], new.parts[-1], sum(new.parts[1:-1])) == (1, 2, 0)
    assert (new.total, new.peak, new.latest) == (3, 2, 2)


def test_how_they_ended() -> None:
    """Each response counts in its class, and a failure that was not tried again in a figure of its
    own.
    """
    facts = [fact(MINUTE, status) for status in (200, 201, 302, 402, 503)] + [
        fact(MINUTE, failed=True),
        fact(MINUTE),
    ]
    assert [each.total for each in over(PERIODS[0], facts, NOW)] == [7, 2, 1, 1, 1, 1]


def test_a_sample_is_scaled() -> None:
    assert next(iter(over(PERIODS[2], [fact(MINUTE)] * 3, NOW, scale=10.4))).total == 31


@pytest.mark.parametrize(
    ("parts", "points"),
    [
        ([0, 0], "0.0,19.0 100.0,19.0"),
        ([0, 4], "0.0,19.0 100.0,1.0"),
        ([2, 2], "0.0,1.0 100.0,1.0"),
        ([5], "0.0,1.0"),
    ],
)
def test_points(parts: list[int], points: str) -> None:
    """The line fills the picture, and is at its bottom where nothing happened."""
    assert Series(name="", css="", parts=parts).points == points


def test_the_share_of_a_sample() -> None:
    """The highest id of a sample tells how many records there are, in either order of ids."""
    ids = sorted(
        UUID(bytes=sha256(b"%d" % number).digest()[:16], version=5) for number in range(20_000)
    )
    assert share(ids[:1000], limit=1000) == pytest.approx(0.05, rel=0.15)
    grouped = sorted(ids, key=lambda each: each.bytes[10:] + each.bytes[8:10])
    assert share(grouped[:1000], limit=1000) == pytest.approx(0.05, rel=0.15)
    assert share(ids[:999], limit=1000) == 1  # all of them
    assert share(ids[:500] + ids[600:] + ids[500:600], limit=1000) is None
