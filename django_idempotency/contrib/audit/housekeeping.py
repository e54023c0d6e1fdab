"""The trail is purged after a retention of its own, erased of a person, and sealed anew: in bounded batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django.db import Error, IntegrityError, transaction

from ... import conf
from ...core.at_rest import ERASED
from ...core.policy import seconds
from ...core.scope_names import user_of
from ...errors import LostRace
from ...stores.base import utcnow
from ...stores.orm.database_errors import lost_race
from ..at_rest.columns import batches
from ..at_rest.encryption import sealing
from ..at_rest.sealed import CannotOpen, Resealing
from .models import AuditEvent, Reference
from .rows import seal, unseal
from .writing import database

#: The most rows that one statement deletes.
TOGETHER = 1000
_MODELS = (AuditEvent, Reference)
#: What an event keeps nothing of.
_NOBODY = {**dict.fromkeys(AuditEvent.personal, ""), "sealed": None}


def rows_of(model: type[AuditEvent | Reference]) -> Any:
    return model.maintenance.using(database(model))


# ------------------------------------------------------------------------------------------------------------- purge


def edge(now: datetime | None = None) -> datetime | None:
    """Return the moment before which rows have reached AUDIT_RETENTION; `None`: no row ever does."""
    kept = conf.get("AUDIT_RETENTION")
    return None if kept is None else (now or utcnow()) - timedelta(seconds=seconds(kept))


def purge(before: datetime, *, limit: int) -> int:
    """Delete up to `limit` rows from before a moment, and at most `TOGETHER`. Return how many; 0: none is left.

    Raises `LostRace` if that met a deadlock, and the database's errors.
    """
    for model in _MODELS:
        rows = rows_of(model)
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
    return sum(rows_of(model).filter(at__lt=before)[:limit].count() for model in _MODELS)


# ------------------------------------------------------------------------------------------------------------- erase


def erase(scopes: frozenset[str], *, size: int = 1000, dry: bool = False) -> int:
    """Erase the events of the keys of these scopes and of the users that they name, and delete the references.

    That something happened stays: when, which event, and how it ended. Reads both tables in batches of `size`. Return how
    many rows were found; `dry`: change nothing.
    """
    actors = {":".join(user) for scope in scopes if (user := user_of(scope)) is not None}
    found = 0
    events, references = rows_of(AuditEvent), rows_of(Reference)
    for rows in batches(events, size):
        # Compared here, and not in SQL: a collation may say that `a` equals `A`.
        theirs = [row.pk for row in rows if row.scope in scopes]
        acted = [row.pk for row in rows if row.scope not in scopes and _actor(row) in actors]
        if not dry:
            events.filter(pk__in=theirs).update(scope=ERASED, key=ERASED, **_NOBODY)
            events.filter(pk__in=acted).update(**_NOBODY)
        found += len(theirs) + len(acted)
    for rows in batches(references.only("scope"), size):
        theirs = [row.pk for row in rows if row.scope in scopes]
        if not dry:
            references.filter(pk__in=theirs).delete()
        found += len(theirs)
    return found


def _actor(row: AuditEvent) -> str | None:
    try:
        unseal(row)
    except CannotOpen:
        return None
    return row.actor or None


# ------------------------------------------------------------------------------------------------------------ reseal


def reseal(*, size: int, dry: bool = False) -> Iterator[Counter[Resealing]]:
    """Write each row as it would be written now. Yield what became of each batch.

    A row that changes meanwhile, as an erased one does, is left as it is then.
    """
    for model in _MODELS:
        for rows in batches(rows_of(model), size):
            yield Counter(_resealed(row, dry=dry) for row in rows)


def _resealed(row: AuditEvent | Reference, *, dry: bool) -> Resealing:
    if _is_current(row):
        return Resealing.CURRENT
    hashed = ("value_hash",) if isinstance(row, Reference) else ()
    before = {name: getattr(row, name) for name in (*row.personal, *hashed, "sealed")}
    try:
        unseal(row)
    except CannotOpen:
        return Resealing.CLOSED
    seal(row)
    if dry:
        return Resealing.DONE
    rows, after = rows_of(type(row)).filter(pk=row.pk), {name: getattr(row, name) for name in before}
    try:
        with transaction.atomic(using=database(type(row))):
            return Resealing.DONE if rows.filter(**before).update(**after) else Resealing.CHANGED
    except IntegrityError:  # the same reference is there, as it would be written now
        rows.delete()
        return Resealing.DONE


def _is_current(row: AuditEvent | Reference) -> bool:
    """Is it sealed with the key that seals now, or is there nothing to seal it with, or nothing to seal?"""
    ring = sealing()
    if row.sealed is None:
        return ring is None or not any(getattr(row, name) for name in row.personal)
    return ring is not None and ring.is_current(bytes(row.sealed))
