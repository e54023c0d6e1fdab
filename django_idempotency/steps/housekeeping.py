"""Rows whose retention is over, rows of an erased record, and rows under another key of ENCRYPTION_KEYS."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.core.exceptions import ImproperlyConfigured
from django.db import Error, connections

from ..core import rules
from ..core.steps import StepState
from ..errors import LostRace, RecordUnreadable
from ..models import IdempotencyRecord
from ..runtime.encryption import keyring
from ..runtime.registry import stores
from ..stores.base import BaseStore, utcnow
from ..stores.orm.database_errors import lost_race
from ..stores.sealed import CannotOpen, Resealing
from .journal import database_of
from .models import Step
from .sealing import seal, sealed_now, unseal

#: The states of steps whose undo is still to be done, if the operation gives up.
OWING = (StepState.STARTED, StepState.DONE, StepState.UNDOING)
#: Seconds until a record is asked for again that cannot be read now, or whose store is not configured any more.
ASKED_AGAIN = 86400.0
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
    living = IdempotencyRecord.objects.using(using).filter(purge_at__gte=utcnow()).values("id")
    return rows.filter(purge_at__lt=utcnow()).exclude(run__in=owing).exclude(record__in=living)


def purge(using: str, *, limit: int) -> int:
    """Delete up to `limit` rows whose retention is over. Return how many; 0: none is left. Raises `LostRace`.

    Those whose record lives elsewhere stay as long as it does: a retry continues after them. Raises `StoreUnavailable`.
    """
    try:
        while due := list(expired(using).order_by("purge_at").defer("result", "arguments")[:limit]):
            left = {operation: _left(*operation, using=using) for operation in set(map(_operation, due))}
            for (_, record, operation), seconds in left.items():
                if seconds is not None:
                    kept = Step.objects.using(using).filter(record=record, operation=operation, purge_at__lt=utcnow())
                    kept.update(purge_at=utcnow() + timedelta(seconds=seconds))
            if gone := [row.pk for row in due if left[_operation(row)] is None]:
                Step.objects.using(using).filter(pk__in=gone).delete()
                return len(gone)
    except Error as error:
        if lost_race(error):
            raise LostRace from error
        raise
    return 0


def _operation(row: Step) -> tuple[str, UUID, UUID]:
    return row.store, row.record, row.operation


def _left(alias: str, record_id: UUID, operation: UUID, *, using: str) -> float | None:
    """Return how long an operation may be retried (seconds); `None`: it cannot be, or its record was looked for here.

    Where nobody can tell, it is asked again in a day.
    """
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
    """Delete the results and arguments of a record's steps, unless an undo may need them. That they were done stays."""
    rows = Step.objects.using(using).filter(record=record)
    died = rows.filter(due_at__isnull=False).values_list("run", flat=True)
    return rows.exclude(run__in=list(died)).update(result=None, arguments=None, error="")


def reseal(using: str, *, size: int, dry: bool = False) -> Iterator[Counter[Resealing]]:
    """Write each value as it would be written now. Yield what became of each batch."""
    last, steps = 0, Step.objects.using(using)
    while rows := list(steps.filter(pk__gt=last).order_by("pk")[:size]):
        last = rows[-1].pk
        yield Counter(_resealed(steps, row, name, dry=dry) for row in rows for name in _SEALED)


def _resealed(steps: Any, row: Step, name: str, *, dry: bool) -> Resealing:
    stored = getattr(row, name)
    if stored is None or sealed_now(bytes(stored), keyring()):
        return Resealing.CURRENT
    try:
        again = seal(unseal(bytes(stored), row.run, row.position, name), row.run, row.position, name)
    except CannotOpen:
        return Resealing.CLOSED
    if not dry and not steps.filter(pk=row.pk, **{name: stored}).update(**{name: again}):
        return Resealing.CHANGED
    return Resealing.DONE
