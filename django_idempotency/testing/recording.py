"""A store that tells what was asked of it, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from uuid import UUID

from ..core.records import Record, Settlement, Ticket
from ..stores.base import BaseStore, Hold, Purged


class RecordingStore(BaseStore):
    """Passes every verb on to another store and keeps its name in `verbs`. An async twin counts as its verb."""

    def __init__(self, store: BaseStore) -> None:
        self.store = store
        self.supports_atomic = store.supports_atomic
        self.verbs: list[str] = []

    def claim(self, ticket: Ticket) -> Record:
        self.verbs.append("claim")
        return self.store.claim(ticket)

    async def aclaim(self, ticket: Ticket) -> Record:
        """See claim()."""
        self.verbs.append("claim")
        return await self.store.aclaim(ticket)

    def settle(self, ticket: Ticket, settlement: Settlement) -> bool:
        self.verbs.append("settle")
        return self.store.settle(ticket, settlement)

    async def asettle(self, ticket: Ticket, settlement: Settlement) -> bool:
        """See settle()."""
        self.verbs.append("settle")
        return await self.store.asettle(ticket, settlement)

    def renew(self, tickets: Sequence[Ticket]) -> set[UUID]:
        self.verbs.append("renew")
        return self.store.renew(tickets)

    def close(self) -> None:
        self.store.close()

    def purge(self, *, limit: int, since: datetime | None = None) -> Purged:
        self.verbs.append("purge")
        return self.store.purge(limit=limit, since=since)

    @contextmanager
    def guard(self, ticket: Ticket, *, takeover: bool = False) -> Iterator[Hold]:
        self.verbs.append("guard")
        with self.store.guard(ticket, takeover=takeover) as hold:
            yield hold
