"""Suspects: rows with equal business facts, close together, made under different keys.

One of them may be the same charge twice: a client that made a new key for its retry, or a person who pressed twice. Or
both are meant. Only a person, or the provider, knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ... import signals
from ...instrumentation.meters import Metric

FOUND = Metric("duplicates.found", "Suspects that a search found.", ("model",), unit="{suspect}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """One row of the project's table."""

    #: The values of the primary key's fields: one, unless it is composite.
    pk: tuple[Any, ...]
    at: datetime
    #: The idempotency key that it was made under; `None`: it has none, or the model does not store keys.
    key: Any
    facts: tuple[Any, ...]
    #: Is the row before it, among those with equal facts, near enough and of another key?
    follows: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """Rows with equal facts, oldest first. Each is near the one before it, and has another key."""

    #: The label of the model, such as "payments.Charge".
    model: str
    #: Their values, by name. Where the database ignores case, those of the first row.
    facts: dict[str, Any]
    #: At least two.
    rows: tuple[Sighting, ...]

    @property
    def first_at(self) -> datetime:
        return self.rows[0].at

    @property
    def last_at(self) -> datetime:
        return self.rows[-1].at

    @property
    def span(self) -> timedelta:
        return self.last_at - self.first_at


def suspects(rows: Iterable[Sighting], *, model: str, names: tuple[str, ...], since: datetime) -> Iterator[Suspect]:
    """Yield the groups of a model's rows, which are ordered by facts, time and primary key.

    A group whose last row is before `since` belongs to an earlier search. A row alone is not a suspect: the row that it
    was near to has not been read.
    """
    for group in _chains(rows):
        if len(group) > 1 and group[-1].at >= since:
            yield Suspect(model=model, facts=dict(zip(names, group[0].facts, strict=True)), rows=tuple(group))


def _chains(rows: Iterable[Sighting]) -> Iterator[list[Sighting]]:
    """Yield the rows in chains: a row that does not follow begins another."""
    chain: list[Sighting] = []
    for row in rows:
        if chain and not row.follows:
            yield chain
            chain = []
        chain.append(row)
    if chain:
        yield chain


def report(model: Any, suspect: Suspect) -> None:
    """Send `duplicate_found`, and count it. Nothing is logged: facts may be personal.

    What a receiver raises is logged by Django and changes nothing.
    """
    FOUND.record(model=model._meta.label)
    signals.duplicate_found.send_robust(sender=model, suspect=suspect)
