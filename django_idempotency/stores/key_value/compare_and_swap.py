"""A base for your own store: all verbs, for a server that keeps a value under a key and can compare
and swap it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from ...core import rules
from ...core.conclusions import claimed, renewed, settled
from ...core.records import Guarantee, Record, Settlement, Ticket
from ...errors import LostRace
from ..base import BaseStore, utcnow
from .signing import sign_record, unsign

#: Tries of a verb. A failed swap means that another writer succeeded; losing more often is not
#: expected.
TRIES = 10


class CompareAndSwapStore(BaseStore):
    """Keeps a record as one value, packed without pickle and signed. A subclass adds `load`, `swap`
    and `purge`.

    Each verb loads and swaps: two trips. A store that compares the owner in its own conditional
    write needs one. Deadlines are set and judged by `clock`: the host's clock, unless a subclass
    queries the server. With several hosts, keep NTP on, and LEASE far above the remaining skew.
    Nothing here joins a transaction, so there is no `atomic`.
    """

    #: Returns the current time as an aware datetime.
    clock: Callable[[], datetime] = staticmethod(utcnow)

    @abstractmethod
    def load(self, record_id: UUID) -> tuple[bytes, Any] | None:
        """Return the value under a key, and the version that swap() compares; `None` if there is no
        value.
        """

    @abstractmethod
    def swap(self, record_id: UUID, value: bytes, *, version: Any, keep_until: datetime) -> bool:
        """Write a value in one atomic step, if `version` is still the current one.

        Return whether it was.

        `version` is `None` if there must be no value yet. The value may be deleted after
        `keep_until`, not before.
        """

    def claim(self, ticket: Ticket) -> Record:
        tried: Record | None = None
        for _ in range(TRIES):
            now, known, version = self._read(ticket.id)
            if tried is not None and known is not None and rules.owned(known, ticket):
                # Ours since a swap whose response the driver lost.
                return known._replace(taken=tried.taken)
            if known is not None and (
                ticket.guarantee is Guarantee.ATOMIC or not rules.takeable(known, ticket)
            ):
                return known
            tried = claimed(ticket, known, now)
            if self._write(tried, version):
                return tried
        raise LostRace

    def settle(self, ticket: Ticket, settlement: Settlement) -> bool:
        return self._changed(
            ticket.id,
            lambda known, now: (
                settled(ticket, known, settlement, now) if known.owner == settlement.fence else None
            ),
        )

    def renew(self, tickets: Sequence[Ticket]) -> set[UUID]:
        return {ticket.owner for ticket in tickets if self._renewed(ticket)}

    def _renewed(self, ticket: Ticket) -> bool:
        return self._changed(
            ticket.id,
            lambda known, now: renewed(ticket, known, now) if rules.owned(known, ticket) else None,
        )

    def get(self, record_id: UUID) -> Record | None:
        return self._read(record_id)[1]

    def _changed(
        self, record_id: UUID, change: Callable[[Record, datetime], Record | None]
    ) -> bool:
        """Write what `change` returns for the record.

        Return `False` if there is no record, or no change.
        """
        for _ in range(TRIES):
            now, known, version = self._read(record_id)
            wanted = None if known is None else change(known, now)
            if wanted is None:
                return False
            if self._write(wanted, version):
                return True
        raise LostRace

    def _read(self, record_id: UUID) -> tuple[datetime, Record | None, Any]:
        # before the request: its result is judged as of a slightly earlier time, never a later one
        now = self.clock()
        value, version = self.load(record_id) or (None, None)
        return now, None if value is None else unsign(value, record_id, now), version

    def _write(self, record: Record, version: Any) -> bool:
        return self.swap(
            record.id, sign_record(record), version=version, keep_until=rules.keep_until(record)
        )
