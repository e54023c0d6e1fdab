"""`request.idempotency.step(…)` and `current_operation().step(…)`, and what the steps of a work
mean for its end.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import Token
from typing import Any, TypeVar, overload
from uuid import UUID

from ...api import CURRENT_STEP, Guarantee, OperationHandle, Resolved
from ...core import rules
from ...core.conclusions import Ending, WorkResult
from ...core.records import CANCELLATION, UNDONE, OutcomeKind
from ...engine.operation import Operation
from ...errors import ConfigurationError, OperationCancelled, OperationHeld, OwnershipLost, Problem
from ...functions.current import CurrentOperation
from ...runtime.current_step import RunningStep
from ...runtime.handle import HELD_FOR, Course
from ..at_rest.encryption import sealing
from .actions import Actions, Query, adrive, drive
from .calls import dump_call
from .journal import Journal, database_of
from .models import Step
from .one_step import OneStep
from .rules import owes_undo
from .running import Steps, is_resumed
from .terms import OPTIONS, StepTerms
from .undoing import give_up

T = TypeVar("T")
Hook = Callable[..., Any] | None
Kept = Sequence[type[Exception]]

logger = logging.getLogger("django_idempotency")

_NOT_GIVEN_UP = (
    "An operation should have given up, and could not: its steps are not undone. A retry goes "
    "on with it."
)
_NOT_ENDED = (
    "A work has ended although its step %r has not: whether that had an effect is not "
    "known. So the response is not "
    "remembered, and a retry goes on with the step. Let the exception of a step leave the "
    "work, or name it in keep=[…]."
)
_CUT = "The step %r was cut, and may still run: its key stays busy until its lease has ended."
#: What a step raises that ends the work: the client gets it as a problem.
STEP_PROBLEMS = (OperationHeld, OperationCancelled, OwnershipLost)


class Block:
    """What both kinds of block share: `with ….step("charge") as step: if not step.done: step.result
    = charge(key=step.key)`.
    """

    def __init__(self, step: OneStep) -> None:
        self._step = step
        self._result: Any = None
        self._token: Token[RunningStep | None] | None = None

    @property
    def done(self) -> bool:
        """Has an earlier attempt done it? Then `result` is what it stored."""
        return self._current.done

    @property
    def key(self) -> str:
        """The step's key, 64 hex digits: the same on every attempt."""
        return self._current.running.key

    @property
    def result(self) -> Any:
        """What the step stored. After the block: the stored form of what it set."""
        return self._result

    @result.setter
    def result(self, value: Any) -> None:
        if self.done:
            raise ConfigurationError(
                f"The step {self._step.terms.name!r} is done: ask `if not step.done` "
                "before its work."
            )
        self._result = value

    @property
    def _current(self) -> OneStep:
        assert self._step.position, "inside the with block"
        return self._step

    def _begin(self) -> Actions[None]:
        yield from self._step.begin()
        if self.done:
            self._result = self._step.result
        else:
            self._token = CURRENT_STEP.set(self._step.running)

    def _end(self, error: BaseException | None) -> Actions[bool]:
        """Return whether an exception does not count, because another owner was faster."""
        if self._token is None:
            return False
        CURRENT_STEP.reset(self._token)
        if error is None:
            self._result = yield from self._step.finish(self._result)
        elif (yield from self._step.fail(error)):
            self._result = self._step.result
            return True
        return False


class StepBlock(Block):
    """A step as a `with` block."""

    def __enter__(self) -> StepBlock:  # noqa: PYI034 - Python 3.10 has no Self
        drive(self._begin())
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        return drive(self._end(error))


class AsyncStepBlock(Block):
    """A step as an `async with` block."""

    async def __aenter__(self) -> AsyncStepBlock:  # noqa: PYI034 - as above
        await adrive(self._begin())
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        return await adrive(self._end(error))


class StepsCourse(Course):
    """The course of a work that may have steps."""

    handle: StepsHandle
    #: Should it have given up, and could not, such as while the database was away?
    _stuck = False

    @property
    def _steps(self) -> Steps | None:
        return self.handle._steps  # noqa: SLF001 - ours

    def decided(self) -> Ending | None:
        """Return how the steps end the work, whatever its response or exception is; `None`: as
        those say.
        """
        steps = self._steps
        held = super().decided()
        if held is not None or steps is None:
            return held
        if steps.held:
            return Ending(WorkResult.KEPT, OutcomeKind.HELD.outcome(), HELD_FOR)
        if steps.journal is None:
            return None
        if steps.given_up:
            return Ending(WorkResult.KEPT, UNDONE if steps.nothing_remains else CANCELLATION)
        if steps.cut is not None:
            logger.warning(_CUT, steps.cut)
            return Ending(WorkResult.CUT)
        return None

    def is_unfinished(self) -> bool:
        """Must a retry go on with the work?

        It should have given up and could not, or a step that calls elsewhere has no result: mostly
        its exception was caught.
        """
        steps = self._steps
        if (
            steps is not None
            and steps.unfinished is not None
            and not (steps.held or steps.given_up)
        ):
            logger.error(_NOT_ENDED, steps.unfinished)
            return True
        return self._stuck

    def can_be_undone(self) -> bool:
        steps = self._steps
        return steps is not None and not steps.given_up and any(map(owes_undo, steps.known))

    def have_begun(self) -> bool:
        """Has a step been done or begun?

        An attempt after the first that has come to no step reads them: one query. If they cannot be
        read, it may be so.
        """
        return drive(self._begun())

    def _begun(self) -> Actions[bool]:
        try:
            if self._steps is None and not self.handle._may_have_steps():  # noqa: SLF001 - ours
                return False
            return (yield from self.handle._run().look())  # noqa: SLF001 - ours
        except Exception:  # noqa: BLE001 - any driver's
            return True

    def completed(self) -> None:
        """Note that the record of the work is completed, so that `idempotency_resume operations`
        need not look.
        """
        drive(self._completed())

    def _completed(self) -> Actions[None]:
        steps = self._steps
        if steps is not None and steps.is_watched:
            with suppress(Exception):  # then it looks
                yield Query(steps.close)

    def left_by(self, error: BaseException) -> Problem | None:
        """Give up if the policy names the exception that left the work.

        Return the problem that a step raised, if any.

        What fails here is tried again by `idempotency_resume operations`.
        """
        return drive(self._left_by(error))

    def _left_by(self, error: BaseException) -> Actions[Problem | None]:
        if self._gives_up_on(error):
            try:
                if (yield from self.handle._run().look()):  # noqa: SLF001 - ours
                    yield from self.handle._giving_up()  # noqa: SLF001 - ours
            except Exception:
                self._stuck = True
                logger.exception(_NOT_GIVEN_UP)
        if super().left_by(error) is not None:
            return self.problem
        steps = self._steps
        if not isinstance(error, STEP_PROBLEMS) or not (
            self.handle.is_held or (steps is not None and steps.begun)
        ):
            return None
        self.problem = error
        return error

    def _gives_up_on(self, error: BaseException) -> bool:
        """Does the policy name this exception?

        An attempt that finds that an earlier one gave up undoes what is left.
        """
        steps, policy = self._steps, self.handle._policy  # noqa: SLF001 - ours
        if policy is None or not (self.handle._may_have_steps() if steps is None else steps.begun):  # noqa: SLF001
            return False
        if self.handle.is_held or (steps is not None and steps.held):
            return False  # what a person decides about is not undone
        given_up = steps is not None and steps.given_up
        return isinstance(error, OperationCancelled if given_up else tuple(policy.undo_on))


class StepsHandle(OperationHandle):
    """A handle whose work can consist of steps."""

    _course = StepsCourse

    _steps: Steps | None = None

    @overload
    def step(
        self, name: str, /, *, undo: Hook = ..., at: str = ..., ask: Hook = ..., keep: Kept = ...
    ) -> StepBlock: ...
    @overload
    def step(self, name: str, function: Callable[..., T], /, *args: Any, **given: Any) -> T: ...
    def step(
        self, name: str, function: Callable[..., Any] | None = None, /, *args: Any, **given: Any
    ) -> Any:
        """Do one step of the work, and remember its result: a retry or takeover gets that, and does
        not do it again.

        `function(*args, **kwargs)` writes to the database of the steps, in one transaction with its
        result. If it has an argument `idempotency_key`, it calls elsewhere: it gets the step's key
        there, which is the same on every attempt, and runs outside of a transaction. `here`
        overrides that. The value returned is the stored form, on the first run, too.

        `undo(result)` is called if the operation gives up; in the argument `idempotency_key`, if it
        has that, it gets a key of its own. `at` says what happens to a step that broke off:
        "least_once" repeats it with its key, and "most_once" asks `ask(asked)`, which returns
        `asked.run()`, `.found(result)` or `.hold()`; without it a person must decide. `keep` are
        exceptions that are a result: they are stored and raised again. `retry(function, *args,
        **kwargs)` calls the function, such as a stamina or tenacity caller.

        Without a function it is a block: `with ….step("charge") as step: if not step.done:
        step.result = …`.

        Raises what the function raises; `ConfigurationError` for a step that cannot be here;
        `StepsChanged`; `OperationHeld`; `OperationCancelled` after the operation has given up;
        `StepResultNotStored`; `OwnershipLost` if another owner has taken over; and what `derive()`
        raises.
        """
        step = self._step(name, function, given)
        return StepBlock(step) if function is None else drive(step.do(args, given))

    @overload
    def astep(
        self, name: str, /, *, undo: Hook = ..., at: str = ..., ask: Hook = ..., keep: Kept = ...
    ) -> AsyncStepBlock: ...
    @overload
    def astep(
        self, name: str, function: Callable[..., Awaitable[T]], /, *args: Any, **given: Any
    ) -> Awaitable[T]: ...
    @overload
    def astep(
        self, name: str, function: Callable[..., T], /, *args: Any, **given: Any
    ) -> Awaitable[T]: ...
    def astep(
        self, name: str, function: Callable[..., Any] | None = None, /, *args: Any, **given: Any
    ) -> Any:
        """See step().

        A coroutine function calls elsewhere; what writes here is a sync function, and runs in a
        thread.
        """
        step = self._step(name, function, given)
        return AsyncStepBlock(step) if function is None else adrive(step.do(args, given))

    def _step(
        self, name: str, function: Callable[..., Any] | None, given: dict[str, Any]
    ) -> OneStep:
        """Return a step. Takes its options out of what was given: the rest is for the function."""
        options = {option: given.pop(option) for option in OPTIONS if option in given}
        return OneStep(self._run(), StepTerms(name=name, function=function, **options))

    def undo_steps(self) -> bool:
        """Give up: undo the steps that have an undo, in reverse.

        The response is stored, whatever its status is.

        `False`: one could not be undone, and `manage.py idempotency_resume operations` tries it
        again; or idempotency is off, and nothing is known of the steps. No step can follow. Raises
        `ConfigurationError` under `atomic`, in an open transaction and inside a step, and
        `OwnershipLost` if another owner has taken over: then nothing is undone.
        """
        return drive(self._giving_up())

    async def aundo_steps(self) -> bool:
        """See undo_steps()."""
        return await adrive(self._giving_up())

    def _giving_up(self) -> Actions[bool]:
        run = self._run()
        run.check_giving_up()
        undone = run.journal is not None and (yield from give_up(run.journal, cut=run.cut))
        yield from run.gave_up(undone=undone)
        return undone

    def _may_have_steps(self) -> bool:
        """May an earlier attempt have done steps, although this one has come to none?"""
        policy = self._policy
        if policy is None or policy.guarantee is Guarantee.ATOMIC:
            return False
        return (policy.store_body or sealing() is not None) and is_resumed(self._operation)

    def _run(self) -> Steps:
        if self._steps is None:
            self._steps = self._new_steps()
        return self._steps

    def _new_steps(self) -> Steps:
        policy = self._policy
        journal = None
        if self.record_id is not None:
            assert policy is not None
            journal = self._new_journal(policy)
        return Steps(self._operation, journal, is_lost=lambda: self.lost, dump=self._dumped)

    def _new_journal(self, policy: Resolved) -> Journal | None:
        """Return the rows of the operation; `None`: it is `atomic`, and remembers none."""
        operation = self._operation
        if policy.guarantee is Guarantee.ATOMIC:
            return None
        if not policy.store_body and sealing() is None:
            raise ConfigurationError(
                "A step stores its result until the operation has ended, and the policy "
                "says StatusOnly(): type "
                "ENCRYPTION_KEYS, so that it is stored sealed, or leave the step or StatusOnly out."
            )
        first = Step(
            run=UUID(bytes=bytes.fromhex(self._derive("steps"))[:16], version=5),
            record=operation.ticket.id,
            operation=_operation_of(operation),
            store=policy.store,
            attempt=self.attempt,
        )
        using = database_of(operation.store)
        ttl = operation.ticket.ttl
        return Journal(of=first, using=using, ttl=ttl, keeps_results=policy.store_body)

    def _dumped(self) -> bytes | None:
        """Return the arguments of a function's call, with which a command can finish it.

        It cannot finish a view.
        """
        call = self._bound if isinstance(self, CurrentOperation) else None
        return (
            None
            if call is None
            else dump_call(call.terms, self._operation.ticket.key, call.args, call.kwargs)
        )


def _operation_of(operation: Operation) -> UUID:
    assert operation.record is not None and operation.run is not None, "derive() has asked"  # noqa: PT018
    return rules.operation_of(operation.record, operation.run)
