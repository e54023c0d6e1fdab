"""What the steps of a work mean for its end."""

from __future__ import annotations

import logging
from contextlib import suppress

from django.db import connections

from ...core.conclusions import WorkResult
from ...core.concurrency import in_thread
from ...core.records import CANCELLATION, UNDONE, OutcomeKind
from ...core.steps import owes_undo
from ...errors import OperationCancelled, OperationHeld, OwnershipLost, Problem
from ...runtime.handle import HELD_FOR, Course, WorkEnding
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


class StepsCourse(Course):
    """The course of a work that may have steps."""

    handle: StepsHandle
    #: Should it have given up, and could not, such as while the database was away?
    _stuck = False

    @property
    def _steps(self) -> Steps | None:
        return self.handle._steps  # noqa: SLF001 - ours

    def decided(self) -> WorkEnding | None:
        """Return how the steps end the work, whatever its response or exception is; `None`: as those say."""
        steps = self._steps
        if (held := super().decided()) is not None or steps is None:
            return held
        if steps.held:
            return WorkEnding(WorkResult.KEPT, OutcomeKind.HELD.outcome(), HELD_FOR)
        if steps.journal is None:
            return None
        if steps.given_up:
            return WorkEnding(WorkResult.KEPT, UNDONE if steps.nothing_remains else CANCELLATION, None)
        if steps.cut is not None:
            logger.warning(_CUT, steps.cut)
            return WorkEnding(WorkResult.CUT, None, None)
        return None

    def is_unfinished(self) -> bool:
        """Must a retry go on with the work?

        It should have given up and could not, or a step that calls elsewhere has no result: mostly its exception was caught.
        """
        steps = self._steps
        if steps is not None and steps.unfinished is not None and not (steps.held or steps.given_up):
            logger.error(_NOT_ENDED, steps.unfinished)
            return True
        return self._stuck

    def can_be_undone(self) -> bool:
        steps = self._steps
        return steps is not None and not steps.given_up and any(map(owes_undo, steps.rows.known))

    def have_begun(self) -> bool:
        """Has a step been done or begun?

        An attempt after the first that has come to no step reads them: one query. If they cannot be read, it may be so.
        """
        return drive(self._begun())

    async def ahave_begun(self) -> bool:
        return await adrive(self._begun())

    def _begun(self) -> Actions[bool]:
        try:
            return (yield from self.handle._have_begun())  # noqa: SLF001 - ours
        except Exception:  # noqa: BLE001 - any driver's
            return True

    def completed(self) -> None:
        """Note that the record of the work is completed, so that `idempotency_complete` need not look."""
        if (steps := self._steps) is not None and steps.is_watched:
            with suppress(Exception):  # then it looks
                steps.close()

    async def acompleted(self) -> None:
        if (steps := self._steps) is not None and steps.is_watched:
            with suppress(Exception):
                await in_thread(steps.close, close=connections.close_all)

    def left_by(self, error: BaseException) -> Problem | None:
        """Give up if the policy names the exception that left the work. Return the problem that a step raised, if any.

        What fails here is tried again by `idempotency_complete`.
        """
        if self._gives_up_on(error):
            drive(self._leaving())
        return self._problem_in(error)

    async def aleft_by(self, error: BaseException) -> Problem | None:
        if self._gives_up_on(error):
            await adrive(self._leaving())
        return self._problem_in(error)

    def _leaving(self) -> Actions[None]:
        try:
            yield from self.handle._leaving()  # noqa: SLF001 - ours
        except Exception:
            self._stuck = True
            logger.exception(_NOT_GIVEN_UP)

    def _gives_up_on(self, error: BaseException) -> bool:
        """Does the policy name this exception? An attempt that finds that an earlier one gave up undoes what is left."""
        steps, policy = self._steps, self.handle._policy  # noqa: SLF001 - ours
        if policy is None or not (self.handle._may_have_steps() if steps is None else steps.begun):  # noqa: SLF001
            return False
        if self.handle.is_held or (steps is not None and steps.held):
            return False  # what a person decides about is not undone
        given_up = steps is not None and steps.given_up
        return isinstance(error, OperationCancelled if given_up else tuple(policy.undo_on))

    def _problem_in(self, error: BaseException) -> Problem | None:
        steps = self._steps
        if not isinstance(error, STEP_PROBLEMS) or not (self.handle.is_held or (steps is not None and steps.begun)):
            return None
        self.problem = error
        return error
