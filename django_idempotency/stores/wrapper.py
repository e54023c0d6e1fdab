"""A store around another store: it passes every verb on. Override the verbs that do more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from django.core.checks import CheckMessage

from ..core.interventions import Intervention, Wanted
from ..core.records import Record, Settlement, Ticket
from .base import Audit, BaseStore, Guard, Purged, Scanned

if TYPE_CHECKING:
    from ..core.records import Counted, Repeats


class WrappedStore(BaseStore):
    """Does what `store` does, and has its capabilities.

    A subclass that only changes what passes overrides `inwards()`, `settlement()` and `outwards()`.
    """

    store: BaseStore

    def __init__(self, store: BaseStore) -> None:
        self.store = self.inside = store
        self.supports_atomic = store.supports_atomic
        self.expires_natively = store.expires_natively
        self.max_body = store.max_body
        self.using = store.using
        self.rows_in = store.rows_in
        self.counts_repeats = store.counts_repeats

    def check(
        self, alias: str, *, deploy: bool = False, copies_only: bool = False
    ) -> Iterable[CheckMessage]:
        """See BaseStore.check(). `store` is checked as well, after this one."""
        return ()

    def configure(self, *, claim_lease: Callable[[], float]) -> None:
        self.store.configure(claim_lease=claim_lease)

    def inwards(self, ticket: Ticket) -> Ticket:
        """Return a ticket as the store inside gets it."""
        return ticket

    def settlement(self, ticket: Ticket, settlement: Settlement) -> Settlement:
        """Return the settlement of a ticket as the store inside gets it."""
        return settlement

    def outwards(self, record: Record, ticket: Ticket) -> Record:
        """Return a record of the store inside as it is read under a ticket."""
        return record

    def claim(self, ticket: Ticket) -> Record:
        return self.outwards(self.store.claim(self.inwards(ticket)), ticket)

    def guard(
        self, ticket: Ticket, *, takeover: bool = False, claimed: Record | None = None
    ) -> AbstractContextManager[Guard]:
        guard = self.store.guard(self.inwards(ticket), takeover=takeover, claimed=claimed)
        return _reading(guard, lambda record: self.outwards(record, ticket))

    def settle(self, ticket: Ticket, settlement: Settlement) -> bool:
        return self.store.settle(self.inwards(ticket), self.settlement(ticket, settlement))

    def commit(self, guard: Guard, ticket: Ticket, settlement: Settlement) -> bool:
        inner = self.settlement(ticket, settlement)
        return self.store.commit(guard, self.inwards(ticket), inner)

    def renew(self, tickets: Sequence[Ticket]) -> set[UUID]:
        return self.store.renew(tickets)

    def get(self, record_id: UUID) -> Record | None:
        return self.store.get(record_id)

    def purge(self, *, limit: int, since: datetime | None = None) -> Purged:
        return self.store.purge(limit=limit, since=since)

    def scan(self, *, size: int = 1000, bodies: bool = False) -> Iterator[Scanned]:
        return self.store.scan(size=size, bodies=bodies)

    def size(self) -> int | None:
        return self.store.size()

    def add_repeats(self, batch: Sequence[Counted]) -> None:
        self.store.add_repeats(batch)

    def repeats(self, record_id: UUID) -> Repeats | None:
        return self.store.repeats(record_id)

    def after_commit(self, call: Callable[[], None]) -> None:
        self.store.after_commit(call)

    def wait(self, ticket: Ticket, *, seconds: float) -> None:
        self.store.wait(ticket, seconds=seconds)

    def apart(self) -> AbstractContextManager[None]:
        return self.store.apart()

    def savepoint(self) -> AbstractContextManager[None]:
        return self.store.savepoint()

    def close(self) -> None:
        self.store.close()

    def change(self, record_id: UUID, wanted: Wanted, *, audit: Audit) -> Intervention:
        return self.store.change(record_id, wanted, audit=audit)


@contextmanager
def _reading(
    guard: AbstractContextManager[Guard], read: Callable[[Record], Record]
) -> Iterator[Guard]:
    """Enter a guard whose locked record is read by `read` before anyone sees it."""
    with guard as entered:
        if entered.record is not None:
            entered.record = read(entered.record)
        yield entered
