"""What the steps of a work mean for its end, for the entry points."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from django.db import connections

from ...core.conclusions import WorkResult
from ...core.concurrency.threads import in_thread
from ...core.policy import Resolved
from ...core.records import CANCELLATION, CANCELLATIONS, UNDONE, Outcome, OutcomeKind
from ...core.steps import owes_undo
from ...errors import OperationCancelled, OperationHeld, OwnershipLost, Problem
from ...runtime.takeovers import HELD_FOR
from .actions import Actions, adrive, drive
from .handle import StepsHandle
from .running import Steps

logger = logging.getLogger("django_idempotency")

_NOT_GIVEN_UP = "An operation should have given up, and could not: its steps are not undone. A retry goes on with it."
_NOT_ENDED = (
    "A work has ended although its step %r has not: whether that had an effect is not known. So the response is not "
    "remembered, and a retry goes on with the step. Let the exception of a step leave the work, or name it in keep=[…]."
)
_CUT = "The step %r was cut, and may still run: its key stays busy until its lease has ended."
#: What a step raises that ends the work: the client gets it as a problem.
STEP_PROBLEMS = (OperationHeld, OperationCancelled, OwnershipLost)


class StepEnding(NamedTuple):
    """How a work ends whose steps have decided it. `ttl` is seconds; `None`: as declared."""

    work_result: WorkResult
    outcome: Outcome | None
    ttl: float | None

    @property
    def is_final(self) -> bool:
        """Is its response not stored, whatever it is? Otherwise the work has given up, and that is its last word."""
        return self.outcome not in CANCELLATIONS


def runs_under(handle: StepsHandle, policy: Resolved, *, arguments: Callable[[], bytes | None] | None = None) -> None:
    """Set the terms of a work, and what returns the arguments of its call, with which a command can finish it."""
    handle._step_policy, handle._step_arguments = policy, arguments  # noqa: SLF001 - ours


def have_begun(handle: StepsHandle) -> bool:
    """Has a step been done or begun, by this attempt or an earlier one? Then the key must not be free for another request.

    An attempt after the first that has come to no step reads them: one query. If they cannot be read, it may be so.
    """
    return drive(_begun(handle))


async def ahave_begun(handle: StepsHandle) -> bool:
    """See have_begun()."""
    return await adrive(_begun(handle))


def _begun(handle: StepsHandle) -> Actions[bool]:
    try:
        return (yield from handle._have_begun())  # noqa: SLF001 - ours
    except Exception:  # noqa: BLE001 - any driver's
        return True


def is_unfinished(handle: StepsHandle) -> bool:
    """Must a retry go on with the work, whatever it has returned or raised? Then no response may be kept.

    It should have given up and could not, or a step that calls elsewhere has no result: mostly its exception was caught.
    """
    steps = _steps_of(handle)
    if steps is not None and steps.unfinished is not None and not (steps.held or steps.given_up):
        logger.error(_NOT_ENDED, steps.unfinished)
        return True
    return handle._stuck  # noqa: SLF001 - ours


def ending_by_steps(handle: StepsHandle) -> StepEnding | None:
    """Return how the steps end the work, whatever its response or exception is; `None`: as those say."""
    steps = _steps_of(handle)
    if handle.is_held:  # again: Django takes the mark off with the block of the work in which it was set
        handle._operation.set_rollback()  # noqa: SLF001 - ours
    if handle.is_held or (steps is not None and steps.held):
        return StepEnding(WorkResult.KEPT, OutcomeKind.HELD.outcome(), HELD_FOR)
    if steps is None or steps.journal is None:
        return None
    if steps.given_up:
        return StepEnding(WorkResult.KEPT, UNDONE if steps.nothing_remains else CANCELLATION, None)
    if steps.cut is not None:
        logger.warning(_CUT, steps.cut)
        return StepEnding(WorkResult.CUT, None, None)
    return None


def problem_of(handle: StepsHandle) -> Problem | None:
    """Return what a step or `derive()` raised that has left the work: the client's response is made of that."""
    return handle._problem  # noqa: SLF001 - ours


def can_be_undone(handle: StepsHandle) -> bool:
    """May the steps of a work still be undone? Then nobody may learn that it is done before its record says so."""
    steps = _steps_of(handle)
    return steps is not None and not steps.given_up and any(map(owes_undo, steps.rows.known))


def completed(handle: StepsHandle) -> None:
    """Note that the record of a work is completed, so that `idempotency_complete` need not look. Raises nothing."""
    if (steps := _steps_of(handle)) is not None and steps.is_watched:
        with suppress(Exception):  # then it looks
            steps.close()


async def acompleted(handle: StepsHandle) -> None:
    """See completed()."""
    if (steps := _steps_of(handle)) is not None and steps.is_watched:
        with suppress(Exception):
            await in_thread(steps.close, close=connections.close_all)


def left_by(handle: StepsHandle, error: BaseException) -> Problem | None:
    """Give up if the policy names the exception that left the work. Return the problem that a step raised, if any.

    Raises nothing: what fails here is tried again by `idempotency_complete`.
    """
    if _gives_up_on(handle, error):
        drive(_leaving(handle))
    return _problem(handle, error)


async def aleft_by(handle: StepsHandle, error: BaseException) -> Problem | None:
    """See left_by()."""
    if _gives_up_on(handle, error):
        await adrive(_leaving(handle))
    return _problem(handle, error)


def _leaving(handle: StepsHandle) -> Actions[None]:
    try:
        yield from handle._leaving()  # noqa: SLF001 - ours
    except Exception:
        handle._stuck = True  # noqa: SLF001 - ours
        logger.exception(_NOT_GIVEN_UP)


def _gives_up_on(handle: StepsHandle, error: BaseException) -> bool:
    """Does the policy name this exception? An attempt that finds that an earlier one gave up undoes what is left."""
    steps, policy = _steps_of(handle), handle._step_policy  # noqa: SLF001
    if policy is None or not (handle._may_have_steps() if steps is None else steps.begun):  # noqa: SLF001
        return False
    if handle.is_held or (steps is not None and steps.held):
        return False  # what a person decides about is not undone
    given_up = steps is not None and steps.given_up
    return isinstance(error, OperationCancelled if given_up else tuple(policy.undo_on))


def _problem(handle: StepsHandle, error: BaseException) -> Problem | None:
    steps = _steps_of(handle)
    if not isinstance(error, STEP_PROBLEMS) or not (handle.is_held or (steps is not None and steps.begun)):
        return None
    handle._problem = error  # noqa: SLF001 - ours
    return error


def _steps_of(handle: StepsHandle) -> Steps | None:
    return handle._steps  # noqa: SLF001
