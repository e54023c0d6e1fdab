"""The end of the trail's own retention, in bounded batches."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import Error

from ... import conf
from ...core.policy import seconds
from ...errors import LostRace
from ...stores.base import utcnow
from ...stores.orm.database_errors import lost_race
from .models import AuditEvent, Reference
from .writing import database

#: The most rows of one statement.
TOGETHER = 1000
_MODELS = (AuditEvent, Reference)


def edge(now: datetime | None = None) -> datetime | None:
    """Return the moment before which rows have reached AUDIT_RETENTION; `None`: no row ever does."""
    kept = conf.get("AUDIT_RETENTION")
    return None if kept is None else (now or utcnow()) - timedelta(seconds=seconds(kept))


def purge(before: datetime, *, limit: int) -> int:
    """Delete up to `limit` rows from before a moment, and at most `TOGETHER`. Return how many; 0: none is left.

    Raises `LostRace` if that met a deadlock, and the database's errors.
    """
    for model in _MODELS:
        rows = model.maintenance.using(database(model))
        due = list(rows.filter(at__lt=before).order_by("at").values_list("pk", flat=True)[: min(limit, TOGETHER)])
        if due:
            try:
                rows.filter(pk__in=due).delete()
            except Error as error:
                if lost_race(error):
                    raise LostRace from error
                raise
            return len(due)
    return 0


def count_due(before: datetime, *, limit: int) -> int:
    """Count what a purge would delete, up to `limit`."""
    return sum(model.maintenance.using(database(model)).filter(at__lt=before)[:limit].count() for model in _MODELS)
