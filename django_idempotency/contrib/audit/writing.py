"""Writes the trail: a settle's event in the settle's transaction, any other after the fact.

claimed ── kept in memory ── settle + [claimed, completed]  COMMIT        `atomic`: all of it, or nothing
                          └─ ROLLBACK   settle   [claimed, released]      and after a rollback what was undone
claimed ── written ── settle ── [completed]                               `lease`, Redis, another database
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

from django.db import connections, router, transaction

from ...api import Guarantee, Metric, Record
from ...core.records import shortened
from ...engine.operation import Operation
from ...errors import StoreUnavailable
from ...instrumentation.trail import Trail
from ...signals import EVENTS
from .models import AuditEvent, Reference
from .rows import event_of, intervention_of, reference_of

logger = logging.getLogger("django_idempotency")

FAILURES = Metric("audit.failures", "Events that the audit trail lacks.", unit="{event}")

#: Events between a claim and its work. Those of `atomic` come when its transaction is open.
BEGINNINGS = frozenset({"claimed", "taken_over", "resumed", "suspected"})


@dataclass(slots=True)
class Kept:
    """What is known of an operation from one event to the next."""

    #: The beginning of its run, which is not written yet.
    begun: list[AuditEvent] = field(default_factory=list)
    #: Were its beginning and its end written in the transaction of the settle?
    with_settle: bool = False


class DatabaseTrail(Trail):
    """The trail in the database."""

    def event(self, event: str, operation: Operation, request: Any) -> None:
        if not EVENTS[event].colour:
            return
        try:
            self._event(event, operation, request)
        except Exception as error:  # noqa: BLE001 - it has happened, and the request continues
            failed(event, operation.ticket.key, error)

    def _event(self, event: str, operation: Operation, request: Any) -> None:
        alias = database()
        if event == "unavailable" and operation.store.using == alias:
            return  # this database does not respond either
        row = event_of(event, operation, request)
        kept: Kept = operation.kept_by_sink or Kept()
        if (
            event in BEGINNINGS
            and operation.run is not None
            and _shares_transaction(operation, alias)
        ):
            kept.begun.append(row)
            operation.kept_by_sink = kept
            return
        if event == "completed" and kept.with_settle:
            return
        # Lost after the settle was written: the COMMIT may have succeeded, and the beginning with
        # it.
        before = [] if event == "lost" and kept.with_settle else kept.begun
        kept.begun = []
        append([*before, row], alias)

    def committing(self, event: str, operation: Operation, request: Any) -> None:
        alias = database()
        if not _shares_transaction(operation, alias):
            return
        kept: Kept = operation.kept_by_sink or Kept()
        try:
            AuditEvent.objects.using(alias).bulk_create(
                [*kept.begun, event_of(event, operation, request)]
            )
        except Exception as error:
            failed(event, operation.ticket.key, error)
            raise StoreUnavailable from error
        kept.with_settle = True
        operation.kept_by_sink = kept

    def intervened(self, event: str, record: Record, *, actor: str, reason: str = "") -> None:
        try:
            append([intervention_of(event, record, actor=actor, reason=reason)], database())
        except Exception as error:  # noqa: BLE001 - it has happened
            failed(event, record.key, error)

    def refer(self, operation: Operation, kind: str, value: Any) -> None:
        row = reference_of(operation, kind, value)
        Reference.objects.using(database(Reference)).bulk_create([row], ignore_conflicts=True)


def database(model: type[AuditEvent | Reference] = AuditEvent) -> str:
    """Return the alias of the database that the trail is in."""
    return router.db_for_write(model)


def append(rows: Sequence[AuditEvent], alias: str) -> None:
    """Write rows: at once, or in the transaction that is open here, which no failure breaks."""
    together = len(rows) > 1 or connections[alias].in_atomic_block
    with transaction.atomic(using=alias) if together else nullcontext():
        if len(rows) > 1:
            AuditEvent.objects.using(alias).bulk_create(rows)
        else:
            rows[0].save(using=alias)


def failed(event: str, key: str, error: Exception) -> None:
    """Report an event that is missing from the trail.

    A database's further lines may have the row in them.
    """
    FAILURES.record()
    why = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    with suppress(Exception):  # raised by a log filter
        logger.error(
            "The audit trail lacks an event: %s of the key %s. %s", event, shortened(key), why
        )


def _shares_transaction(operation: Operation, alias: str) -> bool:
    """Is the record of this operation settled in a transaction of the trail's database?"""
    return operation.ticket.guarantee is Guarantee.ATOMIC and operation.store.using == alias
