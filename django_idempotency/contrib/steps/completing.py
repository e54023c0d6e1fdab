"""Operations that died halfway: which are due, and what can be done about each.

Sync; several workers may run.

A worker takes a few rows, which moves their `due_at`, and commits that. So no other worker takes
the same before a time in which this one is done, or dead. What it then does is safe to do twice: an
undo has its key or its transaction, and a call of a function is guarded by its record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any
from uuid import uuid4

from django.core.exceptions import ImproperlyConfigured
from django.db import connections, transaction
from django.db.models import Case, When

from ...api import BaseStore, Guarantee, Record, Status
from ...core import rules
from ...core.conclusions import Ending, WorkResult
from ...core.failures import named
from ...core.records import CANCELLATION, OutcomeKind, kind_of
from ...core.rules import Execute
from ...engine.lease import LeaseOperation
from ...instrumentation.observer import Observer
from ...runtime.registry import stores
from ...stores.orm.clock import Clock
from ..at_rest.sealed import CannotOpen
from .actions import drive
from .calls import finish
from .journal import Journal, PositionTaken, unseal
from .models import Step
from .rules import OWING, StepState, owes_undo
from .undoing import UndoTooOld, give_up

logger = logging.getLogger("django_idempotency")

#: Until when a worker that has taken a row has ended it, or is dead; and when one is looked at that
#: nothing can be done about now.
TAKEN = timedelta(minutes=5)
#: The lease under which an operation is given up (seconds); it is renewed.
LEASE = 60.0
#: What is called before a person's undos begin; `None`: no person has decided them.
ByHand = Callable[[], None] | None

_ABANDONED = "or a person gives it up: --undo and its id"
_ORPHANED = (
    "its record is gone, so nobody can tell whether it ended. A person decides: --undo and its id"
)


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


def due(using: str, *, limit: int, take: bool = True) -> list[Any]:
    """Return up to `limit` rows that are due, and take them."""
    found = (
        Step.objects.using(using)
        .filter(due_at__lte=Clock())
        .order_by("due_at")
        .annotate(read_at=Clock())
    )
    if not take:
        return list(found[:limit])
    skips = connections[using].features.has_select_for_update_skip_locked
    with transaction.atomic(using=using):
        rows: list[Any] = list(found.select_for_update(skip_locked=skips)[:limit])
        until = rows[0].read_at + TAKEN if rows else None
        Step.objects.using(using).filter(pk__in=[row.pk for row in rows]).update(due_at=until)
    for row in rows:
        row.due_at = until
    return rows


def watched(using: str) -> int:
    """Return how many operations are not known to have ended, due now or later."""
    return Step.objects.using(using).filter(due_at__isnull=False).count()


def take_again(row: Step, using: str) -> bool:
    """Take a row for longer, and forget how its undos failed: until they fail again, a worker is at
    them.

    `False`: another process has taken or ended it.
    """
    rows = Step.objects.using(using)
    if not rows.filter(pk=row.pk, due_at=row.due_at).update(due_at=Clock(TAKEN)):
        return False
    row.refresh_from_db(using=using, fields=["due_at"])
    if row.state == StepState.BARRIER:
        rows.filter(run=row.run, state__in=OWING).exclude(error="").update(error="")
    return True


def complete(rows: list[Step], *, using: str) -> Iterator[Looked]:
    """Do what can be done about each row."""
    for row in rows:
        # Again: the rows before it may have taken long.
        if not take_again(row, using):
            yield Looked(step=row, became=Completed.RUNNING)
            continue
        try:
            yield _look(row, using)
        except Exception as error:  # what a project's function raises
            logger.exception("The operation of the step %s cannot be completed now.", row.name)
            yield Looked(
                step=row, became=Completed.FAILED, reason=f"{type(error).__name__}: {error}"[:200]
            )


def _look(row: Step, using: str) -> Looked:
    given_up = row.state == StepState.BARRIER
    try:
        store = stores.outermost(stores[row.store])
    except ImproperlyConfigured:
        return (
            _undo(row, using)
            if given_up
            else _waits(row, f"there is no store {row.store!r} any more")
        )
    record = own(row, store.get(row.record))
    if record is not None and rules.leased(record):
        return Looked(step=row, became=Completed.RUNNING)
    if not given_up:
        return _look_at(row, record, using)
    if record is None or record.status is Status.COMPLETED:
        return _undo(row, using)
    undone = give_up_owned(store, record, journal_of(row, using))
    return (
        Looked(step=row, became=Completed.RUNNING)
        if undone is None
        else _looked(row, using, undone=undone)
    )


def _look_at(row: Step, record: Record | None, using: str) -> Looked:
    """Look at an operation that has not given up, and that nobody owns."""
    if record is not None and record.status is Status.COMPLETED:
        return _ended(row, record, using)
    if record is not None and row.arguments is not None and record.status is Status.RUNNING:
        return _finish(row, record)
    # Could a command undo or finish it? Otherwise it is watched only to delete its results.
    undoable = Step.objects.using(using).filter(run=row.run).exclude(undo="")
    can_be_ended = row.arguments is not None or undoable.exists()
    if record is not None:
        return _waits(row, _ABANDONED if can_be_ended else "")
    if can_be_ended:
        return _waits(row, _ORPHANED)
    journal_of(row, using).close()
    return Looked(step=row, became=Completed.ENDED)


def own(row: Step, found: Record | None) -> Record | None:
    """Return a record if it says what became of the row's operation.

    An expired one does, if that had ended.
    """
    if found is None or found.operation != row.operation:
        return None
    ended = found.status is Status.COMPLETED and kind_of(found.outcome) is not OutcomeKind.HELD
    return None if rules.expired(found) and not ended else found


def _ended(row: Step, record: Record, using: str) -> Looked:
    """Write that an operation has ended, so that nobody undoes it, not even when its record is
    gone.

    One that has given up is undone, and so is a cancelled one: it was cancelled after it had begun.
    """
    if kind_of(record.outcome) is OutcomeKind.HELD:
        return _waits(row, "a person decides: --undo and its id, or release the record")
    rows = list(Step.objects.using(using).filter(run=row.run).order_by("position"))
    last = rows[-1]
    cancelled = record.outcome == CANCELLATION and any(map(owes_undo, rows))
    if cancelled or last.state == StepState.BARRIER:
        return _undo(row, using)
    journal = journal_of(row, using)
    try:
        if last.state == StepState.ENDED:
            journal.close()
        else:
            journal.finish(last.position + 1)
    except PositionTaken:
        return _ended(row, record, using)  # its owner, or a late one, has written there: look again
    return Looked(step=row, became=Completed.ENDED)


def _finish(row: Step, record: Record) -> Looked:
    assert row.arguments is not None
    try:
        arguments = unseal(bytes(row.arguments), row.run, row.position, "arguments")
    except CannotOpen as error:
        return _waits(row, f"its arguments cannot be opened: {error}")
    if refused := finish(record, arguments):
        return _waits(row, refused)
    return Looked(step=row, became=Completed.FINISHED)


def give_up_owned(
    store: BaseStore,
    record: Record,
    journal: Journal,
    *,
    ttl: float | None = None,
    by_hand: ByHand = None,
) -> bool | None:
    """Take the record over, undo its steps, and let retries know.

    `None`: it has another owner, and nothing was done.

    `ttl` is how long retries get to know it (seconds); `None`: as long as the record is kept.
    `by_hand`: a person does it, see give_up(); it is called when the record is ours.
    """
    ticket = record.ticket(owner=uuid4())._replace(lease=LEASE, guarantee=Guarantee.LEASE)
    if ttl is not None:
        ticket = ticket._replace(ttl=ttl)
    # First: if this process dies before the barrier, the record looks like that of a call that has
    # crashed.
    forgotten = journal.forget_arguments()
    claimed = False
    operation = LeaseOperation(store, ticket, Observer())
    try:
        claimed = isinstance(operation.open(), Execute)
    finally:
        if not claimed:
            journal.put_back(forgotten)
    if not claimed:
        return None
    try:
        if by_hand is not None:
            by_hand()
        undone = drive(give_up(journal, by_hand=by_hand is not None))
    except BaseException:
        operation.abandon()
        journal.put_back(forgotten)  # no command calls it again if the barrier is written
        raise
    operation.settle(Ending(WorkResult.KEPT, CANCELLATION))
    return undone


def _undo(row: Step, using: str) -> Looked:
    return _looked(row, using, undone=drive(give_up(journal_of(row, using))))


def _looked(row: Step, using: str, *, undone: bool) -> Looked:
    if undone:
        return Looked(step=row, became=Completed.UNDONE)
    reason = why_not_undone(row, using)
    if reason.endswith(f": {named(UndoTooOld())}"):
        return _waits(row, f"a person decides: --undo and its id. {reason}")
    return Looked(step=row, became=Completed.FAILED, reason=reason)


def why_not_undone(row: Step, using: str) -> str:
    """Return the step of the row's operation that could not be undone, and its exception."""
    owing = Step.objects.using(using).filter(run=row.run, state__in=OWING)
    # What is tried again before what waits for a person.
    failed = (
        owing.exclude(error="")
        .order_by(Case(When(error=named(UndoTooOld()), then=0), default=1), "position")
        .last()
    )
    return "" if failed is None else f"{failed.name}: {failed.error}"


def journal_of(row: Any, using: str, *, ttl: float | None = None) -> Journal:
    """Return the journal of the row's operation, whose rows are kept for `ttl` seconds; `None`: as
    long as before.

    Who ends it with this journal deletes its results: the row does not say whether its policy keeps
    them.
    """
    kept = (
        max(timedelta(days=1), row.purge_at - row.read_at).total_seconds() if ttl is None else ttl
    )
    return Journal(of=row, using=using, ttl=kept, keeps_results=False)


def _waits(row: Step, reason: str) -> Looked:
    return Looked(step=row, became=Completed.WAITING, reason=reason)
