"""Records in this process: the core's own rules over a dict and a lock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from uuid import UUID

from ..core import rules
from ..core.conclusions import claimed, renewed, settled
from ..core.concurrency import new_lock
from ..core.records import Guarantee, Record, Settlement, Ticket
from .base import BaseStore, Purged, Scanned, utcnow, without_body


class MemoryStore(BaseStore):
    """Records in this process.

    Other processes do not see them, and a restart loses them all: for tests and single-process
    development. It is the reference for every other store, so it does nothing but apply the rules.
    `clock` returns an aware datetime.
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
                known = known._replace(read_at=now)
                if ticket.guarantee is Guarantee.ATOMIC or not rules.takeable(known, ticket):
                    return known
            record = rules.born(ticket, now) if known is None else claimed(ticket, known, now)
            self._records[ticket.id.int] = record._replace(taken=False) if record.taken else record
            return record

    def settle(self, ticket: Ticket, settlement: Settlement) -> bool:
        with self._lock:
            known = self._records.get(ticket.id.int)
            if known is None or known.owner.int != settlement.fence.int:
                return False
            self._records[ticket.id.int] = settled(ticket, known, settlement, self._clock())
            return True

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
            return None if known is None else known._replace(read_at=self._clock())

    def scan(self, *, size: int = 1000, bodies: bool = False) -> Iterator[Scanned]:
        with self._lock:
            now = self._clock()
            known = list(self._records.values())
        for start in range(0, len(known), size):
            records = [record._replace(read_at=now) for record in known[start : start + size]]
            yield Scanned(
                records=records if bodies else [without_body(record) for record in records]
            )

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
