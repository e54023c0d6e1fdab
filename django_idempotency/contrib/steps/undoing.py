"""Giving up: a barrier, so that no step follows and no call of one is sent, and then the undos in
reverse, each once.

An undo that takes `idempotency_key` calls elsewhere: its row says UNDOING before it is called, and
it may be called again, with the same key, for as long as that is known to be remembered. Any other
undo writes here, in one transaction with its row. An undo gets what its own step returned, and
depends on no other: if one fails, the others are done. What dies in between is continued by
`idempotency_resume operations`.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from functools import partial
from typing import Any

from django.db import transaction

from ... import conf
from ...core.failures import named
from ...core.lifetime import remembered
from ...core.records import shortened
from ...engine.borders import Border, reached
from ...errors import ConfigurationError, OwnershipLost
from ...runtime.current_step import CLOSERS, RunningStep
from ...runtime.decisions import HoldForReview, RunAgain, UseResult
from ...runtime.handle import HELD_FOR
from . import Asked, InDoubt
from .actions import Actions, Call, Query, only_in
from .journal import STEPS, Journal, PositionTaken, load
from .rules import StepState, UndoAction, is_in_doubt, undo_action
from .terms import KEY_ARGUMENT, function_at, results_of, takes_key

logger = logging.getLogger("django_idempotency")

#: Seconds until an undo that failed is tried again.
AGAIN = timedelta(minutes=5)


_BY_HAND = (
    "Its undo may have had its effect, and its key is too old to be used again. Find out "
    "where it was called, and then type "
    "manage.py idempotency_resume operations --undo and the record's id, which calls it once more."
)
_ENDED_MEANWHILE = "The step has ended meanwhile, or another process undoes it."


class NotUndone(Exception):
    """A step could not be undone: it is tried again, or a person must decide."""


class UndoTooOld(NotUndone):
    """The undo was called, and may have had its effect, and its key is older than LIFETIME: it
    could have it again.
    """


def give_up(journal: Journal, *, by_hand: bool = False, cut: str | None = None) -> Actions[bool]:
    """Undo all steps of an operation. `False`: one could not be undone.

    `by_hand`: a person has decided that, so a step is undone as well of which nobody knows whether
    it had its effect, and so is one whose undo may have had it. `cut`: a step that may still run,
    so that it is too early to ask.
    """
    rows = yield from _bar(journal)
    # Behind the barrier, which a call that is written down now finds. What was sent before is
    # ended, or on its way.
    closed = yield Query(_close_calls, journal.of.run.hex)
    failed: dict[Any, Exception] = {}
    for row in reversed(rows[:-1]):
        try:
            yield from _undo(journal, row, by_hand=by_hand, closed=closed, cut=cut)
        except Exception as error:
            failed[row.pk] = error
            STEPS.record(outcome="not_undone")
            then = (
                _BY_HAND
                if isinstance(error, UndoTooOld)
                else "It is tried again by idempotency_resume operations."
            )
            logger.exception(
                "The step %s of the record %s is not undone. %s",
                row.name,
                shortened(str(row.record)),
                then,
            )
    if closed and not failed:
        yield Query(journal.close)
        return True
    held = bool(failed) and all(isinstance(error, UndoTooOld) for error in failed.values())
    kinds = {pk: named(error) for pk, error in failed.items()}
    yield Query(journal.postpone, rows[-1], kinds, timedelta(seconds=HELD_FOR) if held else AGAIN)
    return False


def _close_calls(operation: str) -> bool:
    closed = [close(operation) for close in CLOSERS]
    return all(closed)


def _bar(journal: Journal) -> Actions[list[Any]]:
    """Return all rows of an operation, the last of which is a barrier."""
    while True:
        rows: list[Any] = yield Query(journal.load)
        last = StepState(rows[-1].state) if rows else None
        if last is StepState.BARRIER:
            return rows
        if last is StepState.ENDED:
            raise OwnershipLost  # a later attempt has completed the record
        try:
            return [*rows, (yield Query(journal.bar, len(rows) + 1))]
        except PositionTaken:
            continue  # another owner has begun a step meanwhile: that one counts, too


def _undo(
    journal: Journal, row: Any, *, by_hand: bool, closed: bool, cut: str | None
) -> Actions[None]:
    if not (yield from _is_owed(journal, row, by_hand=by_hand, closed=closed, cut=cut)):
        return
    undo = function_at(row.undo)
    doubtful = is_in_doubt(row)
    result = InDoubt(name=row.name, key=row.key) if doubtful else load(row)
    was = (StepState.STARTED if doubtful else StepState.DONE, StepState.UNDOING)
    assert undo is not None
    running = RunningStep(
        name=f"undo {row.name}",
        key=row.undo_key,
        operation=f"{row.run.hex}-undo",  # not closed with the steps' own calls
        transactional=not takes_key(undo),
    )
    if running.transactional:
        call = Call(undo, (result,), step=running, drives_async=True)
        reached(running.name, Border.BEFORE)
        if (yield Query(_undo_here, journal, row, call, was)):
            _count_undone(running.name)
        elif doubtful:
            raise NotUndone(_ENDED_MEANWHILE)
        return
    if not (yield Query(partial(journal.begin_undo, anew=by_hand), row, was[0])):
        if doubtful:
            raise NotUndone(_ENDED_MEANWHILE)
        return  # another process has undone it
    reached(running.name, Border.BEFORE)
    yield Call(undo, (result,), {KEY_ARGUMENT: row.undo_key}, step=running, drives_async=True)
    reached(running.name, Border.DURING)
    if (yield Query(journal.mark, row, (StepState.UNDOING,), StepState.UNDONE)):
        _count_undone(running.name)


def _is_owed(
    journal: Journal, row: Any, *, by_hand: bool, closed: bool, cut: str | None
) -> Actions[bool]:
    """Is a step to be undone?

    Asks about one that broke off. Raises `NotUndone` where nobody knows.
    """
    known = row.state != StepState.UNDOING or remembered(
        row.read_at - row.ended_at, lifetime=conf.lifetime(row.name)
    )
    doing = undo_action(row, remembered=by_hand or known)
    if doing is UndoAction.HOLD:
        raise UndoTooOld
    if doing is UndoAction.ASK:
        if not closed or row.name == cut:
            raise NotUndone(
                f"A call of the step {row.name!r} may be on its way, or it was cut, and still runs."
            )
        yield from _find_out(journal, row, by_hand=by_hand)
        doing = undo_action(row)
    return doing is not UndoAction.NOTHING


def _count_undone(name: str) -> None:
    reached(name, Border.AFTER)
    STEPS.record(outcome="undone")


def _undo_here(journal: Journal, row: Any, call: Call, was: tuple[StepState, ...]) -> bool:
    """Undo a step in one transaction with its row. `False`: another process has."""
    with transaction.atomic(using=journal.using, durable=True):
        # First, so that the row is locked: another process waits here, and then finds it undone.
        if undone := journal.mark(row, was, StepState.UNDONE):
            assert call.step is not None
            with only_in(journal.using, f"The step {call.step.name!r}"):
                call.run()
            reached(call.step.name, Border.DURING)
    return undone


def _find_out(journal: Journal, row: Any, *, by_hand: bool) -> Actions[None]:
    """Ask whether a step that broke off had its effect, and write that.

    If nobody knows, raises `NotUndone`; `by_hand` the row stays as it is.
    """
    ask = function_at(row.ask)
    if ask is None:
        if by_hand:
            return
        raise NotUndone(
            f"The step {row.name!r} broke off, and it has no ask= that says whether it had "
            "its effect."
        )
    decision = yield Call(ask, (Asked(row.name, row.key),), drives_async=True)
    match decision:
        case RunAgain():
            written = yield Query(journal.mark, row, (StepState.STARTED,), StepState.SKIPPED)
        case UseResult(result=result):
            data = results_of(function_at(row.function)).dump(result)
            written = yield Query(journal.end, row, StepState.DONE, data)
        case HoldForReview():
            if by_hand:
                return
            raise NotUndone(
                f"The step {row.name!r} broke off, and its ask= says that a person must decide."
            )
        case _:
            raise ConfigurationError(f"ask of the step {row.name!r} returned {decision!r}.")
    if not written:
        raise NotUndone(_ENDED_MEANWHILE)
