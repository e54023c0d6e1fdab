"""A person undoes an operation: one that is held, one that was abandoned, or one whose undo failed.

held ── free ── claimed ── barrier ── undos ── settled as cancelled
abandoned ──────────── claimed, the same                                    killed here: its lease ends, and the next goes on
given up, its record completed ── the barrier is taken ── undos             the same; another worker waits for `due_at`
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID, uuid4

from django.db import transaction

from ...api import BaseStore, Record, Status
from ...core import interventions, rules
from ...core.interventions import Intervention
from ...core.records import CANCELLATION, OutcomeKind, kind_of
from ...errors import LostRace
from ...stores.base import Audit, audited
from ...stores.orm.clock import Clock
from .actions import drive
from .completing import give_up_owned, journal_of, own, take_again, why_not_undone
from .journal import Journal, PositionTaken
from .models import Step
from .rules import OWING, StepState
from .undoing import give_up


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoneByHand:
    """What became of an operation that a person undoes."""

    #: DONE: it has given up. BUSY: an owner, or another worker, is at it. ALREADY: it has ended, or
    #: is undone. GONE: there is no step of this record.
    outcome: Intervention
    #: The step that could not be undone, and its exception: it is tried again. "": there is none.
    failed: str = ""
    #: The steps that broke off and have no undo: nobody knows whether they had their effect.
    doubtful: tuple[str, ...] = ()


def _nothing() -> None:
    pass


def undo_by_hand(
    store: BaseStore, record_id: UUID, *, using: str, audit: Audit, ttl: float
) -> UndoneByHand:
    """Undo the steps of a record's newest operation, unless it has ended.

    A live owner is never overtaken.

    `audit(record)` gets the record as it was, before anything is undone, also one that has expired;
    it is not called where there is no record any more. `ttl` is how long a record that was held
    says that it is cancelled (seconds). Raises what the store raises, and `DatabaseError`.
    """
    last = newest_of(record_id, using)
    if last is None:
        return UndoneByHand(outcome=Intervention.GONE)
    if last.state == StepState.ENDED:
        return UndoneByHand(outcome=Intervention.ALREADY)
    outcome = _undo(store, last, using=using, audit=audit, ttl=ttl)
    if outcome is not Intervention.DONE:
        return UndoneByHand(outcome=outcome)
    doubtful = (
        Step.objects.using(using)
        .filter(run=last.run, state=StepState.STARTED, undo="")
        .order_by("position")
    )
    names = tuple(doubtful.values_list("name", flat=True))
    return UndoneByHand(outcome=outcome, failed=why_not_undone(last, using), doubtful=names)


def _undo(store: BaseStore, last: Step, *, using: str, audit: Audit, ttl: float) -> Intervention:
    found = store.get(last.record)
    record = own(last, found)
    if (record is not None and rules.leased(record)) or not _take(last, using):
        return Intervention.BUSY
    owned = _nothing if found is None else partial(audit, found)
    held = record is not None and kind_of(record.outcome) is OutcomeKind.HELD
    if record is not None and held:
        # Free it, and claim it. If its client comes in between, that owns it, and holds it again.
        if not _freed(store, record, audit=audit):
            return Intervention.BUSY
        record = store.get(record.id)
        owned = _nothing
    kept = ttl if held else None
    journal = journal_of(last, using, ttl=kept)
    if record is not None and (held or record.status is not Status.COMPLETED):
        undone = give_up_owned(store, record, journal, ttl=kept, by_hand=owned)
        return Intervention.BUSY if undone is None else Intervention.DONE
    if record is None or last.state == StepState.BARRIER or record.outcome == CANCELLATION:
        return _finish(journal, last, owned)
    return Intervention.ALREADY


def _freed(store: BaseStore, record: Record, *, audit: Audit) -> bool:
    """Free a held record with its audit: in one transaction, if both are rows of one database.

    Not `store.change()`, which frees any record without an owner: if another person has released
    this one, a retry may have completed it. Who held it is compared in the write.
    """
    freed = interventions.released(record)
    assert freed is not None
    free = partial(store.settle, record.ticket(owner=uuid4()), freed)
    try:
        if store.rows_in is None:
            done = audited(
                lambda: Intervention.DONE if free() else Intervention.BUSY, record, audit
            )
            return done is Intervention.DONE
        with transaction.atomic(using=store.rows_in):
            if ours := free():
                audit(record)
    except LostRace:
        return False
    return ours


def newest_of(record_id: UUID, using: str) -> Any:
    """Return the newest row of a record, the last one of its newest operation, and `read_at`;
    `None`: there is none.
    """
    rows = (
        Step.objects.using(using)
        .filter(record=record_id)
        .defer("result", "arguments")
        .order_by("-pk")
    )
    return rows.annotate(read_at=Clock()).first()


def _finish(journal: Journal, last: Step, owned: Callable[[], None]) -> Intervention:
    """Undo what no owner can touch: its record has ended or is gone.

    Who writes or takes the barrier does it.
    """
    barred = last.state == StepState.BARRIER
    if barred and last.due_at is None:
        return Intervention.ALREADY
    try:
        with transaction.atomic(using=journal.using):  # no barrier without its audit
            if not barred:
                journal.bar(last.position + 1)
            owned()
    except PositionTaken:
        return Intervention.BUSY
    drive(give_up(journal, by_hand=True))
    return Intervention.DONE


def _take(last: Any, using: str) -> bool:
    """Take the barrier, if there is one.

    `False`: a process is at its undos, or has died there a moment ago.
    """
    if last.state != StepState.BARRIER or last.due_at is None:
        return True
    failed = Step.objects.using(using).filter(run=last.run, state__in=OWING).exclude(error="")
    if last.due_at > last.read_at and not failed.exists():
        return False
    with transaction.atomic(using=using):
        return take_again(last, using)
