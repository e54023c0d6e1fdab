"""Delete expired records in batches, alongside traffic and other purges; or count them."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from django.db import transaction

from ...core.records import Status
from ...models import IdempotencyRecord
from ..base import Purged
from .dialects import Dialect, dialect
from .statements import instant

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def purge(
    connection: BaseDatabaseWrapper, spoken: Dialect, *, limit: int, since: datetime | None
) -> Purged:
    """Delete up to `limit` records that are due and not leased, in order of `purge_at`.

    Locked rows are skipped.

    Each batch starts at the deadline where the last one ended: otherwise an old snapshot makes
    every batch walk all the dead index entries before it (measured: 1.8 ms → 20 ms per batch).
    """
    table = connection.ops.quote_name(IdempotencyRecord._meta.db_table)
    chosen = (
        f"SELECT {{columns}} {due(connection)} ORDER BY purge_at LIMIT %s {skip_locked(connection)}"
    )
    start = _stored(since or _EPOCH, connection)
    with transaction.atomic(using=connection.alias):
        deadlines = spoken.purge(connection, table, chosen, [start, limit])
    last = max((instant(deadline, connection) for deadline in deadlines), default=None)
    return Purged(count=len(deadlines), resume=last)


def count_due(connection: BaseDatabaseWrapper, limit: int) -> int:
    """Count what a purge would delete, and stop at `limit`."""
    start = _stored(_EPOCH, connection)
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT COUNT(*) FROM (SELECT 1 AS one {due(connection)} LIMIT %s) AS due",
            [start, limit],
        )
        return int(cursor.fetchone()[0])


def due(connection: BaseDatabaseWrapper) -> str:
    """Return the FROM and WHERE of the rows that may be deleted.

    The one parameter is the deadline to start from.
    """
    table = connection.ops.quote_name(IdempotencyRecord._meta.db_table)
    clock = dialect(connection).clock
    free = f"(status <> {Status.RUNNING.value} OR lease_until <= {clock})"
    return f"FROM {table} WHERE purge_at >= %s AND purge_at <= {clock} AND {free}"


def skip_locked(connection: BaseDatabaseWrapper) -> str:
    """Return the locking clause of a scan that must not wait."""
    if not connection.features.has_select_for_update:
        return ""
    return connection.ops.for_update_sql(
        skip_locked=connection.features.has_select_for_update_skip_locked
    )


def _stored(deadline: datetime, connection: BaseDatabaseWrapper) -> Any:
    """Return a deadline as the parameter of a statement."""
    return IdempotencyRecord._meta.get_field("purge_at").get_db_prep_value(deadline, connection)
