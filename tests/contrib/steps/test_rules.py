"""What a step does, for each row that may be at its position."""

from __future__ import annotations

import pytest

from django_idempotency.contrib.steps.models import Step
from django_idempotency.contrib.steps.rules import (
    Repeats,
    StepAction,
    StepRow,
    StepState,
    UndoAction,
    action,
    undo_action,
)

S, A, U = StepState, StepAction, UndoAction


def row(state: StepState, name: str = "charge", undo: str = "") -> StepRow:
    return Step(position=1, name=name, state=state, attempt=1, undo=undo)


@pytest.mark.parametrize(
    ("found", "at_least_once", "at_most_once"),
    [
        (None, A.RUN, A.RUN),
        (row(S.STARTED), A.REPEAT, A.ASK),
        (row(S.DONE), A.RETURN, A.RETURN),
        (row(S.FAILED), A.RAISE, A.RAISE),
        (row(S.UNDOING), A.STOP, A.STOP),
        (row(S.UNDONE), A.STOP, A.STOP),
        (row(S.SKIPPED), A.STOP, A.STOP),
        (row(S.BARRIER, ""), A.STOP, A.STOP),
        (row(S.STARTED, "seat"), A.CHANGED, A.CHANGED),
        (row(S.DONE, "seat"), A.CHANGED, A.CHANGED),
    ],
)
def test_action(found: StepRow | None, at_least_once: StepAction, at_most_once: StepAction) -> None:
    """A step runs once it is clear that it has not, and never after its operation gave up."""
    assert action(found, name="charge", repeats=Repeats.AT_LEAST_ONCE, attempt=2) is at_least_once
    assert action(found, name="charge", repeats=Repeats.AT_MOST_ONCE, attempt=2) is at_most_once


@pytest.mark.parametrize("repeats", list(Repeats))
def test_a_key_that_may_be_forgotten(repeats: Repeats) -> None:
    """What may have used it is not repeated: the project is asked, or a person.

    What is known is still returned.
    """
    for found, expected in (
        (None, A.HOLD),
        (row(S.STARTED), A.ASK),
        (row(S.DONE), A.RETURN),
        (row(S.FAILED), A.RAISE),
    ):
        assert (
            action(found, name="charge", repeats=repeats, attempt=2, remembered=False) is expected
        )


@pytest.mark.parametrize("repeats", list(Repeats))
def test_a_late_attempt(repeats: Repeats) -> None:
    """An attempt stops where a later one has begun, and where the operation has ended."""
    assert action(row(S.STARTED), name="charge", repeats=repeats, attempt=0) is A.LOST
    assert action(row(S.ENDED, ""), name="charge", repeats=repeats, attempt=1) is A.LOST


@pytest.mark.parametrize(
    ("state", "with_undo"),
    [
        (S.STARTED, U.ASK),
        (S.DONE, U.UNDO),
        (S.FAILED, U.NOTHING),
        (S.UNDOING, U.UNDO),
        (S.UNDONE, U.NOTHING),
        (S.SKIPPED, U.NOTHING),
        (S.BARRIER, U.NOTHING),
        (S.ENDED, U.NOTHING),
    ],
)
def test_undo_action(state: StepState, with_undo: UndoAction) -> None:
    """What had its effect is undone once; what may have had it is asked about; what has no undo
    stays.
    """
    assert undo_action(row(state, undo="shop.refund")) is with_undo
    assert undo_action(row(state)) is U.NOTHING
    # Its key may be forgotten: only what was called before is in danger.
    begun = state is S.UNDOING
    assert undo_action(row(state, undo="shop.refund"), remembered=False) is (
        U.HOLD if begun else with_undo
    )
