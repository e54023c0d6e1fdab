"""Records in this process: the core's own rules over a dict and a lock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from ..concurrency.forking import new_lock
from ..core import rules
from ..core.records import Guarantee, Record, Settlement, Ticket
from .base import BaseStore, Purged, utcnow


class MemoryStore(BaseStore):
    """Records in this process.

    Other processes do not see them, and a restart loses them all: for tests and single-process development. It is the
    reference for every other store, so it does nothing but apply the rules. `clock` returns an aware datetime.
    """

    in_process = True

    def __init__(self, *, clock: Callable[[], datetime] = utcnow) -> None:
        self._clock = clock
        #: By the integer of the id: a UUID computes its hash in Python, four times per call.
        self._records: dict[int, Record] = {}
        self._lock = new_lock()

    def claim(self, ticket: Ticket) -> Record:
        with self._lock:
            now = self._clock()
            known = self._records.get(ticket.id.int)
            if known is not None:
                known = replace(known, read_at=now)
                if ticket.guarantee is Guarantee.ATOMIC or not rules.takeable(known, ticket):
                    return known
            record = rules.born(ticket, now) if known is None else claimed(ticket, known, now)
            self._records[ticket.id.int] = replace(record, taken=False) if record.taken else record
            return record

    async def aclaim(self, ticket: Ticket) -> Record:
        """See claim()."""
        return self.claim(ticket)

    def settle(self, ticket: Ticket, settlement: Settlement) -> bool:
        with self._lock:
            known = self._records.get(ticket.id.int)
            if known is None or known.owner.int != settlement.fence.int:
                return False
            self._records[ticket.id.int] = settled(ticket, known, settlement, self._clock())
            return True

    async def asettle(self, ticket: Ticket, settlement: Settlement) -> bool:
        """See settle()."""
        return self.settle(ticket, settlement)

    def renew(self, tickets: Sequence[Ticket]) -> set[UUID]:
        with self._lock:
            owners = set()
            for ticket in tickets:
                known = self._records.get(ticket.id.int)
                if known is not None and rules.owned(known, ticket):
                    self._records[ticket.id.int] = renewed(ticket, known, self._clock())
                    owners.add(ticket.owner)
            return owners

    def get(self, record_id: UUID) -> Record | None:
        with self._lock:
            known = self._records.get(record_id.int)
            return None if known is None else replace(known, read_at=self._clock())

    def purge(self, *, limit: int, since: datetime | None = None) -> Purged:
        with self._lock:
            now = self._clock()
            dead = sorted(
                (record.purge_at, name)
                for name, record in self._records.items()
                if rules.keep_until(record) <= now and (since is None or record.purge_at >= since)
            )[:limit]
            for _, name in dead:
                del self._records[name]
            return Purged(count=len(dead), resume=dead[-1][0] if dead else None)


def claimed(ticket: Ticket, known: Record | None, now: datetime) -> Record:
    """Return the record that a claim makes, at the store's time `now`, if there is none or `known` is takeable."""
    born = rules.born(ticket, now)
    if known is None:
        return born
    run, purge_at = rules.succession(known), max(known.purge_at, born.purge_at)
    if run.new_life:
        return replace(born, operation=rules.operation_of(known, run), purge_at=purge_at)
    names = ("operation", "created_at", "guarantee", "secret_id", "method", "path")
    kept = {name: getattr(known, name) for name in names}
    return replace(born, attempt=run.attempt, taken=run.takeover, purge_at=purge_at, **kept)


def settled(ticket: Ticket, known: Record, settlement: Settlement, now: datetime) -> Record:
    """Return the record that a settlement makes of `known`, which it fences, at the store's time `now`."""
    born = ticket if settlement.new_life else known
    earlier = None if settlement.new_life else known.completed_at
    expires_in, lease_in = settlement.expires_in, settlement.lease_in
    expires_at = known.expires_at if expires_in is None else now + timedelta(seconds=expires_in)
    return Record(
        id=known.id,
        scope=known.scope,
        key=known.key,
        digest=settlement.digest,
        status=settlement.status,
        owner=ticket.owner,
        attempt=settlement.attempt,
        guarantee=born.guarantee,
        lease_until=known.lease_until if lease_in is None else now + timedelta(seconds=lease_in),
        created_at=now if settlement.new_life else known.created_at,
        completed_at=None if settlement.outcome is None else (earlier or now),
        expires_at=expires_at,
        purge_at=max(known.purge_at, expires_at),
        read_at=known.read_at,
        operation=settlement.operation if settlement.new_life else known.operation,
        secret_id=born.secret_id,
        method=born.method,
        path=born.path,
        outcome=settlement.outcome,
        joined=known.joined,
        location=known.location,
    )


def renewed(ticket: Ticket, known: Record, now: datetime) -> Record:
    """Return the record that a renewal makes of `known`, which the ticket owns, at the store's time `now`."""
    return replace(known, lease_until=now + timedelta(seconds=ticket.lease))
