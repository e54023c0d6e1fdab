"""Lets time pass for stored records."""

from __future__ import annotations

from datetime import timedelta

from django.db import DEFAULT_DB_ALIAS
from django.db.models import F

from ..core.policy import Duration, seconds
from ..core.records import Status
from ..models import IdempotencyRecord

MOMENTS = ("lease_until", "created_at", "completed_at", "expires_at", "purge_at")


def elapse(duration: Duration, *, using: str = DEFAULT_DB_ALIAS) -> None:
    """Let time pass for the records of the ORM store by moving their timestamps into the past.

    The store uses the database's clock, which cannot be frozen.
    """
    passed = timedelta(seconds=seconds(duration))
    records = IdempotencyRecord.objects.using(using)
    for record in records.only("pk", *MOMENTS):
        moments = {
            name: moment - passed
            for name in MOMENTS
            if (moment := getattr(record, name)) is not None
        }
        records.filter(pk=record.pk).update(**moments)


def end_leases(*, using: str = DEFAULT_DB_ALIAS) -> None:
    """End the lease of every record of the ORM store whose work is under way, as if its owner had
    died long ago.
    """
    running = IdempotencyRecord.objects.using(using).filter(status=Status.RUNNING.value)
    running.update(lease_until=F("created_at"))
