"""Operations that died halfway: which are due, and what can be done about each. Sync; several workers may run.

A worker takes a few rows, which moves their `due_at`, and commits that. So no other worker takes the same before a time
in which this one is done, or dead. What it then does is safe to do twice: an undo has its key or its transaction, and
a call of a function is guarded by its record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from uuid import uuid4

from django.core.exceptions import ImproperlyConfigured
from django.db import connections, transaction

from ..core import rules
from ..core.conclusions import WorkResult
from ..core.records import CANCELLATION, Guarantee, OutcomeKind, Record, Status, kind_of
from ..core.rules import Execute
from ..core.steps import StepState, owes_undo
from ..engine.lease import LeaseOperation
from ..instrumentation.observer import Observer
from ..runtime.registry import stores
from ..stores.base import BaseStore, utcnow
from ..stores.sealed import CannotOpen
from .actions import drive
from .journal import Journal
from .models import Step
from .sealing import unseal
from .undoing import give_up

logger = logging.getLogger("django_idempotency")

#: Until when a worker that has taken a row has ended it, or is dead; and when one is looked at that nothing can be done
#: about now.
TAKEN = timedelta(minutes=5)
#: The lease under which an operation is given up (seconds); it is renewed.
LEASE = 60.0

#: Calls a function again, with its stored arguments. Returns why it did not; "": it did. Raises what it raises.
Finish = Callable[[Record, bytes], str]


class Completed(Enum):
    """What became of a row that was due."""

    FINISHED = "finished"  # its function was called again
    UNDONE = "undone"
    ENDED = "already ended"
    RUNNING = "still running"
    WAITING = "waiting for a retry of the client"
    FAILED = "failed, and tried again later"


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """One operation that was due."""

    step: Step
    became: Completed
    reason: str = ""


def due(using: str, *, older_than: float, limit: int, take: bool = True) -> list[Step]:
    """Return up to `limit` rows that are due, of steps that began `older_than` seconds ago, and take them."""
    now = utcnow()
    found = Step.objects.using(using).filter(due_at__lte=now, created_at__lte=now - timedelta(seconds=older_than))
    if not take:
        return list(found.order_by("due_at")[:limit])
    skips = connections[using].features.has_select_for_update_skip_locked
    with transaction.atomic(using=using):
        rows = list(found.order_by("due_at").select_for_update(skip_locked=skips)[:limit])
        Step.objects.using(using).filter(pk__in=[row.pk for row in rows]).update(due_at=now + TAKEN)
    return rows


def complete(rows: list[Step], *, using: str, undo: bool, finish: Finish) -> Iterator[Looked]:
    """Do what can be done about each row. `undo`: give up on those that only a client could finish."""
    for row in rows:
        # Again: the rows before it may have taken long.
        Step.objects.using(using).filter(pk=row.pk).exclude(due_at=None).update(due_at=utcnow() + TAKEN)
        try:
            yield _look(row, using=using, undo=undo, finish=finish)
        except Exception as error:  # what a project's function raises
            logger.exception("The operation of the step %s cannot be completed now.", row.name)
            yield Looked(step=row, became=Completed.FAILED, reason=f"{type(error).__name__}: {error}"[:200])


def _look(row: Step, *, using: str, undo: bool, finish: Finish) -> Looked:
    if row.state == StepState.BARRIER:
        return _undo(row, using)
    try:
        store = stores.outermost(stores[row.store])
    except ImproperlyConfigured:
        return Looked(step=row, became=Completed.WAITING, reason=f"there is no store {row.store!r} any more")
    return _look_at(row, store, store.get(row.record), using=using, undo=undo, finish=finish)


def _look_at(row: Step, store: BaseStore, record: Record | None, *, using: str, undo: bool, finish: Finish) -> Looked:
    if record is None or rules.expired(record) or record.operation != row.operation:
        return _waits(row, "its record is gone, so nobody can tell whether it ended: decide in the admin")
    if record.status is Status.COMPLETED:
        return _ended(row, record, using)
    if rules.leased(record):
        return Looked(step=row, became=Completed.RUNNING)
    if row.arguments is not None and record.status is Status.RUNNING:
        return _finish(row, record, finish)
    return _give_up(row, store, record, using) if undo else _waits(row, "")


def _ended(row: Step, record: Record, using: str) -> Looked:
    """Close what has ended. A cancelled operation is undone: it was cancelled after it had begun."""
    rows = Step.objects.using(using).filter(run=row.run)
    if kind_of(record.outcome) is OutcomeKind.HELD:
        return _waits(row, "a person decides about its record")
    if record.outcome == CANCELLATION and any(owes_undo(each.row) for each in rows):
        return _undo(row, using)
    _journal(row, using).close()
    return Looked(step=row, became=Completed.ENDED)


def _finish(row: Step, record: Record, finish: Finish) -> Looked:
    assert row.arguments is not None
    try:
        arguments = unseal(bytes(row.arguments), row.run, row.position, "arguments")
    except CannotOpen as error:
        return _waits(row, f"its arguments cannot be opened: {error}")
    if refused := finish(record, arguments):
        return _waits(row, refused)
    return Looked(step=row, became=Completed.FINISHED)


def _give_up(row: Step, store: BaseStore, record: Record, using: str) -> Looked:
    """Take the record over, undo its steps, and let retries know."""
    ticket = record.ticket(owner=uuid4())._replace(lease=LEASE, guarantee=Guarantee.LEASE)
    operation = LeaseOperation(store, ticket, Observer())
    if not isinstance(operation.open(), Execute):
        return Looked(step=row, became=Completed.RUNNING)
    try:
        looked = _undo(row, using)
    except BaseException:
        operation.abandon()
        raise
    operation.settle(WorkResult.KEPT, CANCELLATION)
    return looked


def _undo(row: Step, using: str) -> Looked:
    if drive(give_up(_journal(row, using))):
        return Looked(step=row, became=Completed.UNDONE)
    failed = Step.objects.using(using).filter(run=row.run).exclude(error="").order_by("position").last()
    return Looked(step=row, became=Completed.FAILED, reason="" if failed is None else f"{failed.name}: {failed.error}")


def _journal(row: Step, using: str) -> Journal:
    kept = max(timedelta(days=1), row.purge_at - utcnow()).total_seconds()
    return Journal(
        run=row.run,
        record=row.record,
        operation=row.operation,
        store=row.store,
        attempt=row.attempt,
        using=using,
        ttl=kept,
    )


def _waits(row: Step, reason: str) -> Looked:
    return Looked(step=row, became=Completed.WAITING, reason=reason)
