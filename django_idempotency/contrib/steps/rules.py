"""What a step of an operation does, given the row that its table holds at its position. Pure.

The rows of an operation are a journal: position 1, 2, 3, each with a name. A position is written
once, so of two owners that reach it (one has lost its lease, and does not know it yet) one finds
the other's row. Giving up writes a barrier at the next position: an owner that is late finds it
there, and goes no further.

    position   1 order DONE   2 charge DONE   3 seat STARTED   4 (barrier)
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, IntEnum
from typing import Any, Protocol

#: The name of a barrier. No step is called that.
BARRIER_NAME = ""


class Repeats(Enum):
    """What a step may do that was found started and not ended."""

    AT_LEAST_ONCE = "least_once"  # run again, with the same key
    AT_MOST_ONCE = "most_once"  # ask the project, or a person


class StepState(IntEnum):
    """The state of a row."""

    STARTED = 1  # committed before the body runs, where that matters
    DONE = 2  # its result is stored
    FAILED = (
        3  # it raised an exception that its policy keeps: nothing was done, and it is raised again
    )
    UNDOING = 4  # its undo may have run
    UNDONE = 5
    SKIPPED = 6  # it was given up, and had no effect
    BARRIER = 7  # the operation gave up: no step follows
    ENDED = 8  # its record is completed: nothing follows, and nothing is undone


class StepRow(Protocol):
    """A row, as far as decisions need it. A `Step` is one."""

    name: str
    state: int
    attempt: int
    undo: str
    result: Any


#: The states of steps whose undo is still to be done, if the operation gives up.
OWING = (StepState.STARTED, StepState.DONE, StepState.UNDOING)
#: The states that only giving up writes.
_GIVEN_UP = (StepState.UNDOING, StepState.UNDONE, StepState.SKIPPED, StepState.BARRIER)
#: The states of rows whose steps have no effect, or none any more.
_WITHOUT_EFFECT = (StepState.FAILED, StepState.UNDONE, StepState.SKIPPED, StepState.BARRIER)


class StepAction(Enum):
    """What a step does."""

    RUN = "run"  # nothing is known of it
    REPEAT = "repeat"  # it may have run, and its key makes that harmless
    ASK = "ask"  # it may have run, and must not run twice, or its key may be forgotten
    HOLD = "hold"  # nobody has noted whether it ran, and its key may be forgotten
    RETURN = "return"  # its result is known
    RAISE = "raise"  # its exception is known
    STOP = "stop"  # the operation has given up
    LOST = "lost"  # a later attempt does it, or has ended: this one must stop
    CHANGED = "changed"  # another step was at this position: the code is not what it was


def action(
    row: StepRow | None, *, name: str, repeats: Repeats, attempt: int, remembered: bool = True
) -> StepAction:
    """Say what the step `name` of an attempt does that comes to the position of `row`; `None`: the
    position is free.

    `remembered`: is its key known to be remembered wherever an earlier attempt may have used it?
    See `lifetime`.
    """
    if row is None:
        return StepAction.RUN if remembered else StepAction.HOLD
    if row.state == StepState.ENDED or (row.state == StepState.STARTED and row.attempt > attempt):
        return StepAction.LOST
    if row.state in _GIVEN_UP:
        return StepAction.STOP
    if row.name != name:
        return StepAction.CHANGED
    if row.state != StepState.STARTED:
        return StepAction.RETURN if row.state == StepState.DONE else StepAction.RAISE
    return StepAction.REPEAT if remembered and repeats is Repeats.AT_LEAST_ONCE else StepAction.ASK


class UndoAction(Enum):
    """What giving up does about a row."""

    NOTHING = "nothing"
    ASK = "ask"  # it may have run: what it returned, and whether it did, is not known
    UNDO = "undo"
    HOLD = "hold"  # its undo may have run, and the undo's key may be forgotten


def is_in_doubt(row: StepRow) -> bool:
    """Does nobody know whether the step had its effect? Also while it is undone even so."""
    return row.result is None and row.state in (StepState.STARTED, StepState.UNDOING)


def undo_action(row: StepRow, *, remembered: bool = True) -> UndoAction:
    """Say what giving up does about a row.

    A step that has no undo stays as it is. `remembered`: is the undo's key?
    """
    if not row.undo:
        return UndoAction.NOTHING
    if row.state == StepState.STARTED:
        return UndoAction.ASK
    if row.state == StepState.UNDOING and not remembered:
        return UndoAction.HOLD
    return (
        UndoAction.UNDO if row.state in (StepState.DONE, StepState.UNDOING) else UndoAction.NOTHING
    )


def leaves_nothing(rows: Iterable[StepRow]) -> bool:
    """Does nothing remain of what the steps of these rows did?"""
    return all(row.state in _WITHOUT_EFFECT for row in rows)


def owes_undo(row: StepRow) -> bool:
    """Would giving up have to do anything about this row?"""
    return undo_action(row) is not UndoAction.NOTHING
