"""`request.idempotency.step(…)` and `current_operation().step(…)`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, overload
from uuid import UUID

from ...core import rules
from ...core.records import Guarantee
from ...engine.operation import Operation
from ...errors import ConfigurationError
from ...functions.current import CurrentOperation
from ...runtime.handle import OperationHandle
from ..at_rest.encryption import sealing
from .actions import Actions, adrive, drive
from .blocks import AsyncStepBlock, StepBlock
from .journal import Journal, database_of
from .one_step import OneStep
from .running import Steps
from .stored_calls import dump_call
from .terms import OPTIONS, terms_of
from .undoing import give_up

T = TypeVar("T")


class StepsHandle(OperationHandle):
    """A handle whose work can consist of steps."""

    _steps: Steps | None = None

    @overload
    def step(
        self,
        name: str,
        /,
        *,
        undo: Callable[..., Any] | None = ...,
        at: str = ...,
        ask: Callable[..., Any] | None = ...,
        here: bool | None = ...,
        keep: Sequence[type[Exception]] = ...,
    ) -> StepBlock: ...
    @overload
    def step(
        self,
        name: str,
        function: Callable[..., T],
        /,
        *args: Any,
        undo: Callable[..., Any] | None = ...,
        at: str = ...,
        ask: Callable[..., Any] | None = ...,
        here: bool | None = ...,
        keep: Sequence[type[Exception]] = ...,
        retry: Callable[..., Any] | None = ...,
        **kwargs: Any,
    ) -> T: ...
    def step(self, name: str, function: Callable[..., Any] | None = None, /, *args: Any, **given: Any) -> Any:
        """Do one step of the work, and remember its result: a retry or takeover gets that, and does not do it again.

        `function(*args, **kwargs)` writes to the database of the steps, in one transaction with its result. If it has an
        argument `idempotency_key`, it calls elsewhere: it gets the step's key there, which is the same on every attempt,
        and runs outside of a transaction. `here` overrides that. The value returned is the stored form, on the first
        run, too.

        `undo(result)` is called if the operation gives up; in the argument `idempotency_key`, if it has that, it gets a
        key of its own. `at` says what happens to a step that broke off: "least_once" repeats it with its key, and
        "most_once" asks `ask(asked)`, which returns `asked.run()`, `.found(result)` or `.hold()`; without it a person
        must decide. `keep` are exceptions that are a result: they are stored and raised again. `retry(function, *args,
        **kwargs)` calls the function, such as a stamina or tenacity caller.

        Without a function it is a block: `with ….step("charge") as step: if not step.done: step.result = …`.

        Raises what the function raises; `ConfigurationError` for a step that cannot be here; `StepsChanged`;
        `OperationHeld`; `OperationCancelled` after the operation has given up; `StepResultNotStored`; `OwnershipLost` if
        another owner has taken over; and what `derive()` raises.
        """
        step = self._step(name, function, given)
        return StepBlock(step) if function is None else drive(step.do(args, given))

    @overload
    def astep(
        self,
        name: str,
        /,
        *,
        undo: Callable[..., Any] | None = ...,
        at: str = ...,
        ask: Callable[..., Any] | None = ...,
        keep: Sequence[type[Exception]] = ...,
    ) -> AsyncStepBlock: ...
    @overload
    def astep(
        self,
        name: str,
        function: Callable[..., Awaitable[T]],
        /,
        *args: Any,
        undo: Callable[..., Any] | None = ...,
        at: str = ...,
        ask: Callable[..., Any] | None = ...,
        here: bool | None = ...,
        keep: Sequence[type[Exception]] = ...,
        retry: Callable[..., Any] | None = ...,
        **kwargs: Any,
    ) -> Awaitable[T]: ...
    @overload
    def astep(
        self,
        name: str,
        function: Callable[..., T],
        /,
        *args: Any,
        undo: Callable[..., Any] | None = ...,
        at: str = ...,
        ask: Callable[..., Any] | None = ...,
        here: bool | None = ...,
        keep: Sequence[type[Exception]] = ...,
        retry: Callable[..., Any] | None = ...,
        **kwargs: Any,
    ) -> Awaitable[T]: ...
    def astep(self, name: str, function: Callable[..., Any] | None = None, /, *args: Any, **given: Any) -> Any:
        """See step(). A coroutine function calls elsewhere; what writes here is a sync function, and runs in a thread."""
        step = self._step(name, function, given)
        return AsyncStepBlock(step) if function is None else adrive(step.do(args, given))

    def _step(self, name: str, function: Callable[..., Any] | None, given: dict[str, Any]) -> OneStep:
        """Return a step. Takes its options out of what was given: the rest is for the function."""
        terms = terms_of(name, function, **{option: given.pop(option) for option in OPTIONS if option in given})
        return OneStep(self._run(), terms)

    def undo_steps(self) -> bool:
        """Give up: undo the steps that have an undo, in reverse. The response is stored, whatever its status is.

        `False`: one could not be undone, and `manage.py idempotency_complete` tries it again; or idempotency is off, and
        nothing is known of the steps. No step can follow. Raises `ConfigurationError` under `atomic`, in an open
        transaction and inside a step, and `OwnershipLost` if another owner has taken over: then nothing is undone.
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
        return (policy.store_body or sealing() is not None) and _is_resumed(self._operation)

    def _have_begun(self) -> Actions[bool]:
        """Has a step been done or begun, whichever attempt did that?"""
        if self._steps is None and not self._may_have_steps():
            return False
        return (yield from self._run().look())

    def _leaving(self) -> Actions[None]:
        """Give up if a step has been done or begun, whichever attempt did that."""
        if (yield from self._run().look()):
            yield from self._giving_up()

    def _run(self) -> Steps:
        steps = self._steps
        if steps is None:
            steps = self._steps = self._new_steps()
        return steps

    def _new_steps(self) -> Steps:
        operation, policy = self._operation, self._policy
        assert policy is not None
        if policy.guarantee is Guarantee.ATOMIC:
            return Steps(None, derive=self._derive, atomic=operation.store.using)
        if not policy.store_body and sealing() is None:
            raise ConfigurationError(
                "A step stores its result until the operation has ended, and the policy says store_body=False: type "
                "ENCRYPTION_KEYS, so that it is stored sealed, or leave the step or store_body out."
            )
        journal = Journal(
            run=UUID(bytes=bytes.fromhex(self._derive("steps"))[:16], version=5),
            record=operation.ticket.id,
            operation=_operation_of(operation),
            store=policy.store,
            attempt=self.attempt,
            using=database_of(operation.store),
            ttl=operation.ticket.ttl,
            keeps_results=policy.store_body,
        )
        return Steps(
            journal,
            derive=self._derive,
            age=self._operation.age,
            is_lost=lambda: self.lost,
            resumed=_is_resumed(operation),
            arguments=self._dumped,
        )

    def _dumped(self) -> bytes | None:
        """Return the arguments of a function's call, with which a command can finish it. It cannot finish a view."""
        call = self._bound if isinstance(self, CurrentOperation) else None
        return None if call is None else dump_call(call.terms, self._operation.ticket.key, call.args, call.kwargs)


class StepsSwitchedOff(StepsHandle):
    """The same while idempotency is off: each step is done, and nothing is remembered."""

    def _may_have_steps(self) -> bool:
        return False

    def _new_steps(self) -> Steps:
        return Steps(None, derive=self._derive)


def _is_resumed(operation: Operation) -> bool:
    """May an earlier attempt have done steps?"""
    return operation.attempt > 1 or operation.run is None or operation.run.takeover or operation.run.resumed


def _operation_of(operation: Operation) -> UUID:
    assert operation.record is not None and operation.run is not None, "derive() has asked"  # noqa: PT018
    return rules.operation_of(operation.record, operation.run)
