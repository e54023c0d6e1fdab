"""A store that records which verbs were called, in order."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from uuid import UUID

from ..core.records import Record, Settlement, Ticket
from ..stores.base import BaseStore, Guard, Purged
from ..stores.wrapper import WrappedStore


class RecordingStore(WrappedStore):
    """Passes every verb on to another store and records its name in `verbs`. An async variant counts as its verb."""

    def __init__(self, store: BaseStore) -> None:
        super().__init__(store)
        self.verbs: list[str] = []

    def claim(self, ticket: Ticket) -> Record:
        self.verbs.append("claim")
        return super().claim(ticket)

    async def aclaim(self, ticket: Ticket) -> Record:
        """See claim()."""
        self.verbs.append("claim")
        return await super().aclaim(ticket)

    def settle(self, ticket: Ticket, settlement: Settlement) -> bool:
        self.verbs.append("settle")
        return super().settle(ticket, settlement)

    async def asettle(self, ticket: Ticket, settlement: Settlement) -> bool:
        """See settle()."""
        self.verbs.append("settle")
        return await super().asettle(ticket, settlement)

    def renew(self, tickets: Sequence[Ticket]) -> set[UUID]:
        self.verbs.append("renew")
        return super().renew(tickets)

    def get(self, record_id: UUID) -> Record | None:
        self.verbs.append("get")
        return super().get(record_id)

    def purge(self, *, limit: int, since: datetime | None = None) -> Purged:
        self.verbs.append("purge")
        return super().purge(limit=limit, since=since)

    def guard(
        self, ticket: Ticket, *, takeover: bool = False, claimed: Record | None = None
    ) -> AbstractContextManager[Guard]:
        self.verbs.append("guard")
        return super().guard(ticket, takeover=takeover, claimed=claimed)
