"""What an operator may do to a record by hand: never against a live owner.

A record is held if its row is locked or its lease is live. Both are checked under our own lock, in one short
transaction that never waits for a lock.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID, uuid4

from django.db.models.expressions import RawSQL

from ...core import rules
from ...core.records import Guarantee, Record, Status, Ticket
from ...errors import LostRace
from ...models import IdempotencyRecord, InstantField
from ..base import Audit, Guard, Intervention
from .dialects import dialect
from .purge import due
from .statements import UNANSWERED

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


class MakeGuard(Protocol):
    """Holds a record under its row lock, as `BaseStore.guard` does."""

    def __call__(self, ticket: Ticket, *, takeover: bool = False) -> AbstractContextManager[Guard]: ...


def release(make_guard: MakeGuard, connection: BaseDatabaseWrapper, record_id: UUID, audit: Audit) -> Intervention:
    """Forget the response, so that the next request runs the work again. It must still match the stored digest."""

    def change(record: Record) -> dict[str, Any] | None:
        return None if rules.released(record) is None else {"status": Status.FREE.value, **UNANSWERED}

    return _intervene(make_guard, connection, record_id, change, audit)


def expire(make_guard: MakeGuard, connection: BaseDatabaseWrapper, record_id: UUID, audit: Audit) -> Intervention:
    """End the retention now, so that the next request runs as a new one, whatever its body."""
    now = clock(connection)
    return _intervene(
        make_guard,
        connection,
        record_id,
        lambda record: None if rules.expired_now(record) is None else {"expires_at": now},
        audit,
    )


def erase(make_guard: MakeGuard, connection: BaseDatabaseWrapper, record_id: UUID, audit: Audit) -> Intervention:
    """Forget the response and the digest, and end the retention."""
    changes = {"status": Status.FREE.value, "digest": b"", "expires_at": clock(connection), **UNANSWERED}
    return _intervene(
        make_guard,
        connection,
        record_id,
        lambda record: None if rules.erased(record) is None else changes,
        audit,
    )


def _intervene(
    make_guard: MakeGuard,
    connection: BaseDatabaseWrapper,
    record_id: UUID,
    change: Callable[[Record], dict[str, Any] | None],
    audit: Audit,
) -> Intervention:
    records = IdempotencyRecord.objects.using(connection.alias).filter(pk=record_id)
    try:
        with make_guard(_ticket(record_id), takeover=True) as guard:
            record = guard.record
            if record is None:
                return Intervention.BUSY if records.exists() else Intervention.GONE
            changes = change(record)
            if rules.leased(record) or changes is None:
                guard.set_rollback()
                return Intervention.ALREADY if changes is None else Intervention.BUSY
            # A new owner token: an owner that lost the record with its lease must not settle it after this.
            records.filter(owner=record.owner).update(owner=uuid4(), **changes)
            audit(record)
    except LostRace:  # SQLite does not show whose lock is in the way
        return Intervention.BUSY
    return Intervention.DONE


def _ticket(record_id: UUID) -> Ticket:
    """Make a ticket that holds a row and runs nothing. `ATOMIC` is what makes a guard lock."""
    return Ticket(
        id=record_id,
        scope="",
        key="",
        digest=b"",
        owner=uuid4(),
        now=datetime.now(timezone.utc),
        lease=0,
        ttl=0,
        guarantee=Guarantee.ATOMIC,
    )


def clock(connection: BaseDatabaseWrapper) -> RawSQL:
    """Return the database's own clock, for the ORM."""
    return RawSQL(dialect(connection).clock, [], output_field=InstantField())  # noqa: S611 - ours, without a parameter


def count_due(connection: BaseDatabaseWrapper, limit: int) -> int:
    """Count what a purge would delete, and stop at `limit`."""
    start = IdempotencyRecord._meta.get_field("purge_at").get_db_prep_value(
        datetime(1970, 1, 1, tzinfo=timezone.utc), connection
    )
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT COUNT(*) FROM (SELECT 1 AS one {due(connection)} LIMIT %s) AS due", [start, limit])
        return int(cursor.fetchone()[0])
