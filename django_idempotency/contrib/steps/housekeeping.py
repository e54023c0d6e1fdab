"""Rows whose retention is over, rows of an erased record, and rows under another key of ENCRYPTION_KEYS."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.core.exceptions import ImproperlyConfigured
from django.db import Error, connections
from django.db.models import Q

from ... import conf
from ...core import rules
from ...core.steps import OWING
from ...errors import LostRace, RecordUnreadable, StoreUnavailable
from ...models import IdempotencyRecord
from ...runtime.registry import stores
from ...stores.base import BaseStore
from ...stores.orm.clock import Clock
from ...stores.orm.database_errors import lost_race
from ..at_rest import columns
from ..at_rest.sealed import Resealing
from .journal import database_of, place
from .models import Step

logger = logging.getLogger("django_idempotency")

#: Seconds until a record is asked for again that cannot be read now, or whose store cannot be built.
ASKED_AGAIN = 86400.0
#: Seconds until a store is asked again that did not respond.
AWAY = 300.0
#: How long past their retention rows are kept whose store is not in STORES: it may be missing only from this deploy.
ORPHANED = timedelta(days=30)
#: The least time (seconds) for which a row is kept that a purge has found alive.
LEAST = 60.0
#: What is sealed.
_SEALED = ("result", "arguments")


def table_of(store: BaseStore) -> str | None:
    """Return the database that has the steps of a store's records; `None`: it has no such table."""
    using = database_of(store)
    return using if Step._meta.db_table in connections[using].introspection.table_names() else None


def expired(using: str) -> Any:
    """Return the rows to purge: their retention is over, and nothing that could be undone has died halfway.

    Whether a record of another database lives is not asked here.
    """
    rows = Step.objects.using(using)
    died = rows.filter(due_at__isnull=False).values("run")
    owing = rows.filter(run__in=died, state__in=OWING).exclude(undo="").values("run")
    # A record that was taken over lives longer than the steps of its first attempt.
    living = IdempotencyRecord.objects.using(using).filter(purge_at__gte=Clock()).values("id")
    known = Q(store__in=list(conf.get("STORES"))) | Q(purge_at__lt=Clock(-ORPHANED))
    return rows.filter(known, purge_at__lt=Clock()).exclude(run__in=owing).exclude(record__in=living)


def count_due(using: str, *, limit: int) -> int:
    """Count what a purge would look at, up to `limit`."""
    return int(expired(using)[:limit].count())


def purge(using: str, *, limit: int) -> int:
    """Look at up to `limit` rows whose retention is over, and delete them. Return how many. Raises `LostRace`.

    Those whose record lives elsewhere stay as long as it does, since a retry continues after them; they are not due
    again before. So do, for minutes, those of a store that does not respond.
    """
    try:
        due = list(expired(using).order_by("purge_at").defer("result", "arguments")[:limit])
        left = _left_of(due, using)
        for (_, record, operation), seconds in left.items():
            if seconds is not None:
                kept = Step.objects.using(using).filter(record=record, operation=operation, purge_at__lt=Clock())
                kept.update(purge_at=Clock(timedelta(seconds=seconds)))
        gone = [row for row in due if left[_operation(row)] is None]
        Step.objects.using(using).filter(pk__in=[row.pk for row in gone]).delete()
    except Error as error:
        if lost_race(error):
            raise LostRace from error
        raise
    for alias, count in Counter(row.store for row in gone if row.store not in conf.get("STORES")).items():
        logger.warning(
            "%d rows of steps were purged whose store %r is not in STORES: nobody can tell how they ended.",
            count,
            alias,
        )
    return len(gone)


def _operation(row: Step) -> tuple[str, UUID, UUID]:
    return row.store, row.record, row.operation


def _left_of(due: list[Step], using: str) -> dict[tuple[str, UUID, UUID], float | None]:
    """Return what _left() says of each operation. A store that does not respond is asked once."""
    left: dict[tuple[str, UUID, UUID], float | None] = {}
    away: set[str] = set()
    for each in dict.fromkeys(map(_operation, due)):
        alias = each[0]
        if alias not in away:
            try:
                left[each] = _left(*each, using=using)
                continue
            except StoreUnavailable as error:
                away.add(alias)
                logger.warning("The store %r does not respond (%s): its steps are kept for minutes.", alias, error)
        left[each] = AWAY
    return left


def _left(alias: str, record_id: UUID, operation: UUID, *, using: str) -> float | None:
    """Return how long an operation may be retried (seconds); `None`: it cannot be, or its record was looked for here.

    Where nobody can tell, it is asked again in a day. Raises `StoreUnavailable`.
    """
    if alias not in conf.get("STORES"):
        return None  # since ORPHANED
    try:
        store = stores[alias]
        if store.rows_in == using:
            return None
        record = store.get(record_id)
    except (ImproperlyConfigured, RecordUnreadable):
        return ASKED_AGAIN
    if record is None or record.operation != operation:
        return None
    left = (rules.keep_until(record) - record.read_at).total_seconds()
    return max(left, LEAST) if left > 0 else None


def erase(using: str, record: UUID) -> int:
    """Delete the results and arguments of a record's steps, unless a command may need them. That they were done stays."""
    rows = Step.objects.using(using).filter(record=record)
    died = rows.filter(due_at__isnull=False).values_list("run", flat=True)
    needed = rows.filter(run__in=list(died)).exclude(undo="", arguments=None).values_list("run", flat=True)
    return rows.exclude(run__in=list(needed)).update(result=None, arguments=None, error="")


def reseal(using: str, *, size: int, dry: bool = False) -> Iterator[Counter[Resealing]]:
    """Write each value as it would be written now. Yield what became of each batch."""
    steps = Step.objects.using(using)
    return columns.reseal(steps, _SEALED, lambda row, name: place(row.run, row.position, name), size=size, dry=dry)
