"""Records in this process: the core's own rules over a dict and a lock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from ..core import rules
from ..core.records import Guarantee, Record, Settlement, Ticket
from .base import BaseStore, Purged, utcnow


class MemoryStore(BaseStore):
    """Records in this process.

    Another process knows nothing of them, and a restart forgets them all: for tests and one-process development. It is
    the reference for every other store, so it does nothing but what the rules say. `clock` returns an aware datetime.
    """

    def __init__(self, *, clock: Callable[[], datetime] = utcnow) -> None:
        self._clock = clock
        self._records: dict[UUID, Record] = {}
        self._lock = threading.Lock()

    def claim(self, ticket: Ticket) -> Record:
        with self._lock:
            now = self._clock()
            known = self._records.get(ticket.id)
            if known is not None:
                known = replace(known, read_at=now)
                if ticket.guarantee is Guarantee.ATOMIC or not rules.takeable(known, ticket):
                    return known
            record = claimed(ticket, known, now)
            self._records[ticket.id] = replace(record, taken=False)
            return record

    async def aclaim(self, ticket: Ticket) -> Record:
        """See claim()."""
        return self.claim(ticket)

    def settle(self, ticket: Ticket, settlement: Settlement) -> bool:
        with self._lock:
            known = self._records.get(ticket.id)
            if known is None or known.owner != settlement.fence:
                return False
            self._records[ticket.id] = settled(ticket, known, settlement, self._clock())
            return True

    async def asettle(self, ticket: Ticket, settlement: Settlement) -> bool:
        """See settle()."""
        return self.settle(ticket, settlement)

    def renew(self, tickets: Sequence[Ticket]) -> set[UUID]:
        with self._lock:
            renewed = set()
            for ticket in tickets:
                known = self._records.get(ticket.id)
                if known is not None and rules.owned(known, ticket):
                    until = self._clock() + timedelta(seconds=ticket.lease)
                    self._records[ticket.id] = replace(known, lease_until=until)
                    renewed.add(ticket.owner)
            return renewed

    def look(self, record_id: UUID) -> Record | None:
        with self._lock:
            known = self._records.get(record_id)
            return None if known is None else replace(known, read_at=self._clock())

    def purge(self, *, limit: int, since: datetime | None = None) -> Purged:
        with self._lock:
            now = self._clock()
            dead = sorted(
                (record.expires_at, name)
                for name, record in self._records.items()
                if rules.expired(replace(record, read_at=now)) and (since is None or record.expires_at >= since)
            )[:limit]
            for _, name in dead:
                del self._records[name]
            return Purged(count=len(dead), resume=dead[-1][0] if dead else None)


def claimed(ticket: Ticket, known: Record | None, now: datetime) -> Record:
    """Return what a claim makes of nothing, or of a takeable record, at the store's `now`."""
    born = rules.born(ticket, now)
    if known is None or (run := rules.succession(known)).new_life:
        return born
    kept = ("created_at", "guarantee", "secret_id", "method", "path")
    return replace(born, attempt=run.attempt, taken=run.takeover, **{name: getattr(known, name) for name in kept})


def settled(ticket: Ticket, known: Record, settlement: Settlement, now: datetime) -> Record:
    """Return what a settlement makes of the record that it fences, at the store's `now`."""
    record = replace(
        known,
        status=settlement.status,
        owner=ticket.owner,
        attempt=settlement.attempt,
        digest=settlement.digest,
        completed_at=None if settlement.outcome is None else (known.completed_at or now),
        outcome=settlement.outcome,
    )
    if settlement.expires_in is not None:
        record = replace(record, expires_at=now + timedelta(seconds=settlement.expires_in))
    if settlement.new_life:
        taken = {name: getattr(ticket, name) for name in ("guarantee", "secret_id", "method", "path")}
        completed_at = None if settlement.outcome is None else now
        record = replace(record, created_at=now, completed_at=completed_at, **taken)
    return record
