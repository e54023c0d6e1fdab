"""Rows whose retention is over, rows of an erased record, and rows under another key of
ENCRYPTION_KEYS.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.db.models import Q

from ...api import BaseStore, OperationHandle, Purging, setting
from ...core import rules
from ...errors import RecordUnreadable, StoreUnavailable
from ...models import IdempotencyRecord
from ...runtime.registry import stores
from ...stores.orm.clock import Clock
from ..at_rest import columns
from ..at_rest.sealed import Resealing
from ..optional_app import Housekeeping, purging, raced
from .journal import database_of, place
from .models import Step
from .rules import OWING, StepState

logger = logging.getLogger("django_idempotency")

#: Seconds until a record is asked for again that cannot be read now, or whose store cannot be
#: built.
ASKED_AGAIN = 86400.0
#: Seconds until a store is asked again that did not respond.
AWAY = 300.0
#: How long past their retention rows are kept whose store is not in STORES: it may be missing only
#: from this deploy.
ORPHANED = timedelta(days=30)
#: The least time (seconds) for which a row is kept that a purge has found alive.
LEAST = 60.0
#: What is sealed.
_SEALED = ("result", "arguments")


class StepsOfRecords(Housekeeping):
    """The table of steps, in the database that has the store's records."""

    def handle_mixin(self) -> type[OperationHandle]:
        from .handle import StepsHandle  # not above: a worker without steps needs none of it

        return StepsHandle

    def purging(self, alias: str, store: BaseStore) -> Iterable[Purging]:
        using = table_of(store)
        if using is not None:
            yield replace(purging("step", partial(expired, using)), purge=partial(purge, using))

    def erase_record(self, store: BaseStore, record: UUID, *, erased: bool) -> int:
        return 0 if (using := table_of(store)) is None else erase(using, record, erased=erased)

    def reseal(
        self, store: BaseStore, *, size: int, dry: bool
    ) -> Iterator[tuple[str, Counter[Resealing]]]:
        using = table_of(store)
        if using is not None:
            for batch in columns.reseal(
                Step.objects.using(using), _SEALED, _place, size=size, dry=dry
            ):
                yield "values of steps", batch


def table_of(store: BaseStore) -> str | None:
    """Return the database that has the steps of a store's records; `None`: it has no such table."""
    using = database_of(store)
    return using if Step._meta.db_table in connections[using].introspection.table_names() else None


def expired(using: str) -> Any:
    """Return the rows to purge: their retention is over, and nothing that could be undone has died
    halfway.

    Whether a record of another database lives is not asked here.
    """
    rows = Step.objects.using(using)
    died = rows.filter(due_at__isnull=False).values("run")
    owing = rows.filter(run__in=died, state__in=OWING).exclude(undo="").values("run")
    # A record that was taken over lives longer than the steps of its first attempt.
    living = IdempotencyRecord.objects.using(using).filter(purge_at__gte=Clock()).values("id")
    known = Q(store__in=list(setting("STORES"))) | Q(purge_at__lt=Clock(-ORPHANED))
    return (
        rows.filter(known, purge_at__lt=Clock()).exclude(run__in=owing).exclude(record__in=living)
    )


def purge(using: str, *, limit: int) -> int:
    """Look at up to `limit` rows whose retention is over, and delete them.

    Return how many. Raises `LostRace`.

    Those whose record lives elsewhere stay as long as it does, since a retry continues after them;
    they are not due again before. So do, for minutes, those of a store that does not respond.
    """
    with raced():
        due = list(expired(using).order_by("purge_at").defer("result", "arguments")[:limit])
        left = _left_of(due, using)
        for (_, record, operation), seconds in left.items():
            if seconds is not None:
                kept = Step.objects.using(using).filter(
                    record=record, operation=operation, purge_at__lt=Clock()
                )
                kept.update(purge_at=Clock(timedelta(seconds=seconds)))
        gone = [row for row in due if left[_operation(row)] is None]
        Step.objects.using(using).filter(pk__in=[row.pk for row in gone]).delete()
    for alias, count in Counter(
        row.store for row in gone if row.store not in setting("STORES")
    ).items():
        logger.warning(
            "%d rows of steps were purged whose store %r is not in STORES: nobody can tell "
            "how they ended.",
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
                logger.warning(
                    "The store %r does not respond (%s): its steps are kept for minutes.",
                    alias,
                    error,
                )
        left[each] = AWAY
    return left


def _left(alias: str, record_id: UUID, operation: UUID, *, using: str) -> float | None:
    """Return how long an operation may be retried (seconds); `None`: it cannot be, or its record
    was looked for here.

    Where nobody can tell, it is asked again in a day. Raises `StoreUnavailable`.
    """
    if alias not in setting("STORES"):
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


def erase(using: str, record: UUID, *, erased: bool) -> int:
    """Delete the results and arguments of a record's steps.

    That they were done stays. Return how many undos are owed.

    An undo that is owed needs its result. Until the record itself is `erased`, a command may also
    call a function again.
    """
    rows = Step.objects.using(using).filter(record=record)
    due = rows.filter(due_at__isnull=False)
    if erased:
        needed = set(due.filter(state=StepState.BARRIER).values_list("run", flat=True))
    else:
        died = set(due.values_list("run", flat=True))
        needed = set(
            rows.filter(run__in=died).exclude(undo="", arguments=None).values_list("run", flat=True)
        )
    rows.exclude(run__in=needed).update(result=None, arguments=None, error="")
    return len(needed) if erased else 0


def _place(row: Step, column: str) -> tuple[bytes, ...]:
    return place(row.run, row.position, column)
