"""A store that returns what the test lists and records what happened, COMMIT and ROLLBACK
included.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any
from uuid import UUID

from django_idempotency.core.records import Guarantee, Record, Settlement, Status, Ticket
from django_idempotency.engine.lease import LeaseOperation
from django_idempotency.engine.operation import AtomicOperation, EventSink, Operation
from django_idempotency.errors import TransactionLost
from django_idempotency.stores.base import BaseStore, Guard, Purged
from django_idempotency.testing.tickets import NOW


def record_of(ticket: Ticket, **fields: Any) -> Record:
    """Make the record that this ticket's claim inserts."""
    row: dict[str, Any] = {
        "status": Status.RUNNING,
        "attempt": 1,
        "lease_until": NOW + timedelta(seconds=ticket.lease),
        "expires_at": NOW + timedelta(seconds=ticket.ttl),
        "purge_at": NOW + timedelta(seconds=ticket.ttl),
        "created_at": NOW,
        "completed_at": None,
        "read_at": NOW,
        "operation": ticket.owner,
    }
    shared = (
        "id",
        "scope",
        "key",
        "digest",
        "owner",
        "guarantee",
        "secret_id",
        "method",
        "path",
        "request_id",
    )
    return Record(**{**{name: getattr(ticket, name) for name in shared}, **row, **fields})


def operation_of(store: BaseStore, ticket: Ticket, sink: EventSink) -> Any:
    """Return the operation of a ticket, by its guarantee."""
    if ticket.guarantee is Guarantee.ATOMIC:
        return AtomicOperation(store, ticket, sink)
    return LeaseOperation(store, ticket, sink)


class FakeGuard(Guard):
    """A transaction that only writes words to the trace of its store."""

    def __init__(self, store: FakeStore) -> None:
        self.committed = False
        self.marked = False
        self.gone = False
        #: Has an error broken the transaction of a caller, too?
        self.breaks = False
        self._store = store
        self._is_over = False

    def __enter__(self) -> Guard:
        self.record = answer(self._store.locks)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_over:
            return
        self._is_over = True
        if error is not None:
            return
        store = self._store
        fails = store.fails
        if self.marked or fails is not None:
            store.trace.append("rollback")
        else:
            store.trace.append("commit")
            self.committed = True
            fails = store.on_commit
        if fails is not None and not self.marked:
            store.fails = None
            raise fails

    def needs_rollback(self) -> bool:
        return self.marked and (self.breaks or not self._is_over)

    def lost(self) -> bool:
        return self.gone

    def set_rollback(self) -> None:
        self.marked = True


class FakeStore(BaseStore):
    """Each verb returns its next result; a result that is an exception is raised.

    `locks` are the records that guards find (`None`: another owner holds it); without any, guards
    join nothing. `fails` is what COMMIT raises, and `on_commit` what comes right after it.
    """

    supports_atomic = True

    def __init__(
        self,
        *,
        claims: list[Any],
        locks: list[Any] | None = None,
        settles: list[Any] | None = None,
        fails: Exception | None = None,
        on_commit: Exception | None = None,
    ) -> None:
        self.claims = claims
        self.locks: list[Any] = locks or []
        self.joins = locks is not None
        self.settles = settles or []
        self.fails = fails
        self.on_commit = on_commit
        self.trace: list[str] = []
        self.settled: list[Settlement] = []
        self.takeovers: list[bool] = []

    def claim(self, ticket: Ticket) -> Record:
        self.trace.append("claim")
        record: Record = answer(self.claims)
        return record

    def settle(self, ticket: Ticket, settlement: Settlement) -> bool:
        self.trace.append("settle")
        self.settled.append(settlement)
        return bool(answer(self.settles)) if self.settles else True

    def commit(self, guard: Guard, ticket: Ticket, settlement: Settlement) -> bool:
        if super().commit(guard, ticket, settlement):
            return True
        if guard.lost():
            raise TransactionLost
        return False

    def renew(self, tickets):
        return {ticket.owner for ticket in tickets}

    def get(self, record_id: UUID) -> Record | None:
        raise NotImplementedError

    def purge(self, *, limit: int, since: datetime | None = None) -> Purged:
        raise NotImplementedError

    def guard(
        self, ticket: Ticket, *, takeover: bool = False, claimed: Record | None = None
    ) -> AbstractContextManager[Guard]:
        if not self.joins:
            return Guard()
        self.trace.append("guard")
        self.takeovers.append(takeover)
        return FakeGuard(self)


def answer(answers: list[Any]) -> Any:
    """Return the next result, or raise it."""
    given = answers.pop(0)
    if isinstance(given, BaseException):
        raise given
    return given


class Listener:
    """An observer that keeps every event."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.errors: list[BaseException | None] = []

    def __call__(
        self, event: str, operation: Operation, error: BaseException | None = None
    ) -> None:
        self.events.append(event)
        self.errors.append(error)
