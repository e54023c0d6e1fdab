"""The repeats of records, in a table of their own: a row for each key and batch.

Nothing of a record's own row is written: that would be a new version of a kilobyte for each batch,
and would compete with the lock of an owner. Rows are only added, so no two processes wait for each
other, and summed when somebody looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from uuid import UUID

from django.db import transaction
from django.db.models import Max, Sum

from ...core.records import Counted, Repeats
from ...models import RepeatCount

#: Rows that a batch deletes at most whose records are purged, for each that it adds; and at least.
DELETED = 2
LEAST_DELETED = 100


def add(using: str, batch: Sequence[Counted]) -> None:
    """Write a batch, and delete some rows that nothing needs any more."""
    rows = [
        RepeatCount(
            record_id=counted.record_id, purge_at=counted.purge_at, **counted.repeats._asdict()
        )
        for counted in batch
    ]
    table = RepeatCount.objects.using(using)
    with transaction.atomic(using=using):
        table.bulk_create(rows, batch_size=500)
    over = table.filter(purge_at__lt=datetime.now(timezone.utc)).order_by("purge_at")
    gone = list(over.values_list("pk", flat=True)[: max(DELETED * len(rows), LEAST_DELETED)])
    if gone:
        table.filter(pk__in=gone).delete()


def of(using: str, record_id: UUID) -> Repeats | None:
    """Return what is known of a record's repeats; `None`: none was counted."""
    rows = RepeatCount.objects.using(using).filter(record_id=record_id)
    found = rows.aggregate(
        replays=Sum("replays"), mismatches=Sum("mismatches"), seen=Max("last_seen")
    )
    return (
        None
        if found["seen"] is None
        else Repeats(found["replays"], found["mismatches"], found["seen"])
    )
