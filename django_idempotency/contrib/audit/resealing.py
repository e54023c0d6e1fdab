"""Seal the trail with the first key of ENCRYPTION_KEYS, or store it unsealed again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from django.db import IntegrityError, transaction

from ..at_rest.columns import batches
from ..at_rest.encryption import sealing
from ..at_rest.sealed import CannotOpen, Resealing
from .models import AuditEvent, Reference
from .sealing import Personal, open_event, open_reference, seal_event, seal_reference
from .values import value_hash
from .writing import database

#: The columns of each table that sealing changes.
_EVENT = (*Personal._fields, "sealed")
_REFERENCE = ("value", "value_hash", "sealed")


def reseal(*, size: int, dry: bool = False) -> Iterator[Counter[Resealing]]:
    """Write each row as it would be written now. Yield what became of each batch.

    A row that changes meanwhile, as an erased one does, is left as it is then.
    """
    for rows in batches(AuditEvent.maintenance.using(database()), size):
        yield Counter(_event(row, dry=dry) for row in rows)
    for rows in batches(Reference.maintenance.using(database(Reference)), size):
        yield Counter(_reference(row, dry=dry) for row in rows)


def _event(row: AuditEvent, *, dry: bool) -> Resealing:
    if _is_current(row, any((row.actor, row.request_id, row.reason))):
        return Resealing.CURRENT
    try:
        opened = open_event(row)
    except CannotOpen:
        return Resealing.CLOSED
    before = {name: getattr(row, name) for name in _EVENT}
    for name, value in opened._asdict().items():
        setattr(row, name, value)
    row.sealed = None
    seal_event(row)
    return _changed(row, before, dry=dry)


def _reference(row: Reference, *, dry: bool) -> Resealing:
    if _is_current(row, bool(row.value)):
        return Resealing.CURRENT
    try:
        value = open_reference(row)
    except CannotOpen:
        return Resealing.CLOSED
    before = {name: getattr(row, name) for name in _REFERENCE}
    row.value, row.value_hash, row.sealed = value, value_hash(value), None
    seal_reference(row)
    return _changed(row, before, dry=dry)


def _is_current(row: Any, holds: bool) -> bool:
    """Is it sealed with the key that seals now, or is there nothing to seal it with, or nothing to seal?"""
    ring = sealing()
    if row.sealed is None:
        return ring is None or not holds
    return ring is not None and ring.is_current(bytes(row.sealed))


def _changed(row: Any, before: dict[str, Any], *, dry: bool) -> Resealing:
    if dry:
        return Resealing.DONE
    rows = type(row).maintenance.using(row._state.db).filter(pk=row.pk)  # noqa: SLF001 - documented
    try:
        with transaction.atomic(using=row._state.db):  # noqa: SLF001 - the same
            return (
                Resealing.DONE
                if rows.filter(**before).update(**{name: getattr(row, name) for name in before})
                else Resealing.CHANGED
            )
    except IntegrityError:  # the same reference is there, as it would be written now
        rows.delete()
        return Resealing.DONE
