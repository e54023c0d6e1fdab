"""Fronts that tests can inspect, and clocks that tests can move."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

from django.db import connection

from django_idempotency.core.records import Record


class Stopwatch:
    """A monotonic clock that only the test advances."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class FarCache:
    """A remote front: also holds busy markers, counts its trips, and fails when the test says so.

    `uncommitted` are the copies that were put while a transaction was open.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.copies: dict[UUID, tuple[Record, float, float]] = {}
        self.trips: list[str] = []
        self.lives: list[float] = []
        self.uncommitted: list[Record] = []
        self.error: Exception | None = None

    def peek(self, record_id: UUID) -> Record | None:
        self._trip("peek")
        if record_id not in self.copies:
            return None
        record, at, ends = self.copies[record_id]
        now = self.clock()
        return (
            record._replace(read_at=record.read_at + timedelta(seconds=now - at))
            if now < ends
            else None
        )

    def put(self, record: Record, *, seconds: float) -> None:
        self._trip("put")
        if connection.in_atomic_block:
            self.uncommitted.append(record)
        self.lives.append(seconds)
        self.copies[record.id] = (record, self.clock(), self.clock() + seconds)

    def drop(self, record_id: UUID) -> None:
        self._trip("drop")
        self.copies.pop(record_id, None)

    def _trip(self, verb: str) -> None:
        self.trips.append(verb)
        if self.error is not None:
            raise self.error

    def asked(self) -> list[str]:
        """Return the trips since the last call."""
        trips, self.trips = self.trips, []
        return trips
