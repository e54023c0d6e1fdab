"""Figures over time from a sample of records: how many were claimed, how they ended, in each part
of a period.

A record's id is a hash, so the first records in the order of their ids are a sample that nothing
has chosen. Its size and the highest id in it tell the size of the whole: a tenth of all records
have an id in the first tenth of all ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

#: Records that are read. Twenty thousand random rows of a table that is not in memory take seconds;
#: these, one.
SAMPLE = 10_000


class Fact(NamedTuple):
    """What the figures need of a record. `failed_at` is `None` if its last attempt did not fail."""

    created_at: datetime
    completed_at: datetime | None
    response_status: int | None
    failed_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """A period that ends now, and the number of its parts."""

    title: Promise
    length: timedelta
    parts: int

    @property
    def part(self) -> timedelta:
        return self.length / self.parts


PERIODS = (
    Period(title=_("The last hour"), length=timedelta(hours=1), parts=60),
    Period(title=_("The last 24 hours"), length=timedelta(days=1), parts=48),
    Period(title=_("The last 7 days"), length=timedelta(days=7), parts=56),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One figure over a period: its parts from the oldest on, scaled to all records. `css` names
    its colour.
    """

    name: str | Promise
    css: str
    parts: Sequence[int]

    @property
    def total(self) -> int:
        return sum(self.parts)

    @property
    def peak(self) -> int:
        return max(self.parts)

    @property
    def latest(self) -> int:
        return self.parts[-1]

    @property
    def points(self) -> str:
        """The line of an SVG 100 wide and 20 high, for `points=`.

        A figure that stays zero is a line at the bottom.
        """
        step = 100 / max(len(self.parts) - 1, 1)
        top = max(self.peak, 1)
        return " ".join(
            f"{number * step:.1f},{19 - 18 * part / top:.1f}"
            for number, part in enumerate(self.parts)
        )


#: Each figure: its name, its colour, and when it counts a record; `None`: it does not.
_FIGURES: tuple[tuple[str | Promise, str, Callable[[Fact], datetime | None]], ...] = (
    (_("New keys"), "new", lambda fact: fact.created_at),
    (_("Completed, 2xx"), "of-2", lambda fact: _completed(fact, 2)),
    (_("Completed, 3xx"), "of-3", lambda fact: _completed(fact, 3)),
    (_("Completed, 4xx"), "of-4", lambda fact: _completed(fact, 4)),
    (_("Completed, 5xx"), "of-5", lambda fact: _completed(fact, 5)),
    (_("Failed, and not tried again"), "of-5", lambda fact: fact.failed_at),
)


def _completed(fact: Fact, first: int) -> datetime | None:
    return (
        fact.completed_at
        if fact.response_status is not None and fact.response_status // 100 == first
        else None
    )


def counted(
    period: Period, found: Iterable[tuple[datetime | None, int]], now: datetime
) -> list[int]:
    """Add numbers up in the parts of a period that ends `now`: each at its moment; `None`: in
    none.
    """
    began = now - period.length
    parts = [0] * period.parts
    for at, count in found:
        if at is not None and began < at <= now:
            parts[min(int((at - began) / period.part), period.parts - 1)] += count
    return parts


def repeated(
    period: Period, seen: Sequence[tuple[datetime, int, int]], now: datetime
) -> Iterator[Series]:
    """Yield the figures of what was counted: for each batch of a record its time, its replays and
    its mismatches.
    """
    yield Series(
        name=_("Replays"),
        css="new",
        parts=counted(period, ((at, count) for at, count, _ in seen), now),
    )
    mismatches = counted(period, ((at, count) for at, _, count in seen), now)
    yield Series(name=_("Refused as another request"), css="of-4", parts=mismatches)


def over(
    period: Period, facts: Iterable[Fact], now: datetime, scale: float = 1.0
) -> Iterator[Series]:
    """Yield each figure over a period that ends `now`.

    `scale`: how many records each of the facts stands for.
    """
    facts = list(facts)
    for name, css, when in _FIGURES:
        parts = counted(period, ((when(fact), 1) for fact in facts), now)
        yield Series(name=name, css=css, parts=[round(part * scale) for part in parts])


def share(ids: Sequence[UUID], *, limit: int = SAMPLE) -> float | None:
    """Return which share of all records these are, the first `limit` in the order of their
    database.

    1: all of them. `None`: the database orders ids in no way that we know.
    """
    if len(ids) < limit:
        return 1.0
    for ordered in (_by_bytes, _by_groups):
        if sorted(ids, key=ordered) == list(ids):
            return int.from_bytes(ordered(ids[-1]), "big") / (1 << 128)
    return None


def _by_bytes(value: UUID) -> bytes:
    return value.bytes


def _by_groups(value: UUID) -> bytes:
    """MariaDB's order: the last group of digits first."""
    octets = value.bytes
    return octets[10:] + octets[8:10] + octets[6:8] + octets[4:6] + octets[:4]
