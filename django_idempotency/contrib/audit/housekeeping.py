"""The trail is purged after a retention of its own, erased of a person, and sealed anew: in bounded
batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import IntegrityError, transaction

from ...api import BaseStore, Purging, seconds, setting
from ...core.at_rest import ERASED
from ...scopes import user_of
from ...stores.base import utcnow
from ..at_rest.columns import batches
from ..at_rest.encryption import sealing
from ..at_rest.sealed import CannotOpen, Resealing
from ..optional_app import Erased, Housekeeping, purging
from .models import AuditEvent, Reference
from .rows import seal, unseal
from .writing import database

_MODELS = (AuditEvent, Reference)
#: What an event keeps nothing of.
_NOBODY = {**dict.fromkeys(AuditEvent.personal, ""), "sealed": None}


class AuditTrail(Housekeeping):
    """The tables of the trail, one for all stores."""

    def purging(self, alias: str, store: BaseStore) -> Iterable[Purging]:
        """Return the rows that have reached AUDIT_RETENTION now; without it no row ever does."""
        kept = setting("AUDIT_RETENTION")
        if kept is not None:
            edge = utcnow() - timedelta(seconds=seconds(kept))
            yield purging("audit row", *(partial(before, edge, model) for model in _MODELS))

    def erase(
        self, options: Mapping[str, Any], *, scopes: frozenset[str], size: int, dry: bool
    ) -> Iterator[Erased]:
        """Erase to whom events happened. That they happened stays."""
        if scopes:
            yield Erased(kind="audit rows", erased=erase(scopes, size=size, dry=dry))

    def reseal(
        self, store: BaseStore, *, size: int, dry: bool
    ) -> Iterator[tuple[str, Counter[Resealing]]]:
        """Write each row as it would be written now.

        One that changes meanwhile, as an erased one does, is left as it is then.
        """
        for model in _MODELS:
            for rows in batches(rows_of(model), size):
                yield "audit rows", Counter(_resealed(row, dry=dry) for row in rows)


def rows_of(model: type[AuditEvent | Reference]) -> Any:
    return model.maintenance.using(database(model))


def before(edge: datetime, model: type[AuditEvent | Reference]) -> Any:
    return rows_of(model).filter(at__lt=edge).order_by("at")


def erase(scopes: frozenset[str], *, size: int = 1000, dry: bool = False) -> int:
    """Erase the events of the keys of these scopes and of the users that they name, and delete the
    references.

    That something happened stays: when, which event, and how it ended. Reads both tables in batches
    of `size`. Return how many rows were found; `dry`: change nothing.
    """
    actors = {":".join(user) for scope in scopes if (user := user_of(scope)) is not None}
    found = 0
    events = rows_of(AuditEvent)
    references = rows_of(Reference)
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
    rows = rows_of(type(row)).filter(pk=row.pk)
    after = {name: getattr(row, name) for name in before}
    try:
        with transaction.atomic(using=database(type(row))):
            return Resealing.DONE if rows.filter(**before).update(**after) else Resealing.CHANGED
    except IntegrityError:  # the same reference is there, as it would be written now
        rows.delete()
        return Resealing.DONE


def _is_current(row: AuditEvent | Reference) -> bool:
    """Is it sealed with the key that seals now, or is there nothing to seal it with, or nothing to
    seal?
    """
    ring = sealing()
    if row.sealed is None:
        return ring is None or not any(getattr(row, name) for name in row.personal)
    return ring is not None and ring.is_current(bytes(row.sealed))
