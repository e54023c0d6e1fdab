"""A store that returns what the test lists and records what happened, COMMIT and ROLLBACK
included.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django_idempotency.core.records import Guarantee, Record, Settlement, Status, Ticket
from django_idempotency.engine.lease import LeaseOperation
from django_idempotency.engine.operation import AtomicOperation, EventSink, Operation
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
    """A transaction that only writes words to a trace."""

    def __init__(self, *, needs_rollback: bool = False) -> None:
        self.committed = False
        self.marked = needs_rollback
        self.gone = False

    def needs_rollback(self) -> bool:
        return self.marked

    def lost(self) -> bool:
        return self.gone

    def set_rollback(self) -> None:
        self.marked = True


class FakeStore(BaseStore):
    """Each verb returns its next result; a result that is an exception is raised.

    `locks` are the records that guards find (`None`: another owner holds it); without any, guards
    join nothing. `commit` is what COMMIT raises, `on_commit` what comes right after it, and `dooms`
    whether the work marked its transaction for rollback.
    """

    supports_atomic = True

    def __init__(
        self,
        *,
        claims: list[Any],
        locks: list[Any] | None = None,
        settles: list[Any] | None = None,
        commit: Exception | None = None,
        on_commit: Exception | None = None,
    ) -> None:
        self.claims, self.locks, self.settles = (
            claims,
            locks,
            settles if settles is not None else [],
        )
        self.commit, self.on_commit, self.dooms = commit, on_commit, False
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

    def renew(self, tickets):
        return {ticket.owner for ticket in tickets}

    def get(self, record_id: UUID) -> Record | None:
        raise NotImplementedError

    def purge(self, *, limit: int, since: datetime | None = None) -> Purged:
        raise NotImplementedError

    @contextmanager
    def guard(
        self, ticket: Ticket, *, takeover: bool = False, claimed: Record | None = None
    ) -> Iterator[Guard]:
        if self.locks is None:
            yield Guard()
            return
        self.trace.append("guard")
        self.takeovers.append(takeover)
        guard = FakeGuard()
        guard.record = answer(self.locks)
        yield guard
        if guard.needs_rollback():
            self.trace.append("rollback")
            return
        if (error := self.commit) is not None:
            self.commit = None
            self.trace.append("rollback")
            raise error
        self.trace.append("commit")
        guard.committed = True
        if self.on_commit is not None:
            raise self.on_commit


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
