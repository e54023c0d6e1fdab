"""Calls of guarded functions: in the bracket if they have a key (`engine.bracket`), unguarded if
they need none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from os import environ
from typing import Any, NamedTuple, TypeAlias

from ..core.conclusions import Ending, SettledState, WorkResult
from ..core.rules import Execute, Verdict
from ..engine.bracket import Answered, aguarded, guarded
from ..engine.deadlines import time_for
from ..errors import IdempotencyError, OutcomeUnknown, StoreUnavailable
from ..instrumentation.outcomes import DEGRADED, count
from ..runtime import switch
from ..runtime.app_extensions import extended
from ..runtime.derivation import Unstored
from ..runtime.transactions import arefuse_open_transactions
from . import endings
from .call import FunctionCall, best_effort_key, go_without_key, key_of, plan_of
from .current import BoundCall, CurrentOperation, Unguarded
from .endings import CallEnd
from .terms import FunctionTerms

#: The context in which a function runs unguarded.
WithoutGuard: TypeAlias = CurrentOperation | Unguarded


class Answer(NamedTuple):
    """The result of a call, and whether it is a replay."""

    result: Any
    replayed: bool = False
    #: Did the call have a key, and its store an answer? Otherwise it ran, and its duplicate will
    #: run, too.
    guarded: bool = True


class RunningCall(FunctionCall):
    """A call in the bracket."""

    def before(self) -> None:
        """See GuardedCall.before(). Raises what extensions raise."""
        if self.details is not None:
            self.details.before_claim(self.payload)

    def opened(self, verdict: Verdict) -> Answered[Any] | None:
        if not isinstance(verdict, Execute):
            self.replayed = True
            return Answered(endings.replayed(self, verdict))
        if self.plan.source is not None:
            self.count(verdict)
        if verdict.takeover and self.terms.on_takeover is not None:
            from .takeovers import decide  # most functions have no such hook

            end = decide(self)
            if end is not None:
                return Answered(self.settle(end))
        if self.details is not None:
            self.details.claimed()
        self._begin()
        return None

    def without_store(self, error: StoreUnavailable) -> None:
        """Report that the store is not responding; raise the error unless the call may run without
        the store.

        Raises `DeadlinePassed` if the store has taken so long that nothing may begin.
        """
        self.plan.observer("unavailable", self.operation, error)
        # The store has just said that this execution is suspended here: it must not run a second
        # time.
        suspended = self.execution is not None and self.execution.is_suspended_in(self.operation)
        refused = suspended or self.plan.policy.on_store_failure == "closed"
        if not refused:
            time_for(0)  # the store may have taken longer than the host has
        if self.plan.source is not None:
            count(self.plan.source, error.outcome if refused else DEGRADED, self.operation)
        if refused:
            raise error
        self.degraded = True
        self._begin()

    def refused(self, error: IdempotencyError) -> Any:
        """Raise an error that names the call."""
        raise self.naming(error)

    def abandon(self) -> None:
        super().abandon()
        if self.details is not None:
            self.details.ended()

    def work(self) -> Any:
        """Call the function."""
        with self.current:
            return self.terms.function(*self.args, **self.kwargs)

    async def awork(self) -> Any:
        """See work()."""
        with self.current:
            return await self.terms.function(*self.args, **self.kwargs)

    def _begin(self) -> None:
        """Make the context in which the function runs."""
        bound = BoundCall(self.terms, self.args, self.kwargs)
        self.current = self.plan.handle(self.operation, self.outer, self.plan.policy, bound)
        self._runs = True

    def ended(self, result: Any) -> CallEnd:
        if self.degraded:
            return CallEnd(Ending(WorkResult.KEPT), returned=result)
        return endings.end_of_result(self, result)

    def settle(self, ending: CallEnd) -> Any:
        """Settle in the store, and return the result, or raise.

        Raises what `Operation.settle` raises; `OutcomeUnknown` for a result that may still be
        undone and is not stored.
        """
        if self.degraded:
            return ending.returned
        try:
            self.operation.settle(ending.ending)
        finally:
            if self.details is not None:
                self.details.ended()
        if self.plan.has_course and self._is_completed(ending):
            self.course.completed()
        if ending.raised is not None:
            raise ending.raised
        return ending.returned

    def _is_completed(self, ending: CallEnd) -> bool:
        left_as = self.operation.left_as
        is_kept = ending.ending.work_result is WorkResult.KEPT
        if left_as is None and is_kept and self.course.can_be_undone():
            raise OutcomeUnknown
        return left_as is SettledState.COMPLETED

    def fail(self, error: BaseException) -> Any:
        """End a call that has raised, and raise: its exception, or one that says more."""
        if self.degraded:
            raise error
        self.course.left_by(error)
        try:
            self.settle(endings.end_of_error(self, error))
        except IdempotencyError as problem:
            raise self.naming(problem)  # noqa: B904 - itself
        raise endings.leaving(self, error)


def keyed(terms: FunctionTerms, key: str | None) -> Callable[..., Any]:
    """Return the guarded function, under a key of its own or (`None`) the selected one."""
    if terms.is_async:

        @functools.wraps(terms.function)
        async def acall(*args: Any, **kwargs: Any) -> Any:
            return (await arun(terms, args, kwargs, key)).result

        return acall

    @functools.wraps(terms.function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return run(terms, args, kwargs, key).result

    return call


def begin(
    terms: FunctionTerms,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    key: str | None,
    reports: bool = True,
) -> RunningCall | WithoutGuard:
    """Return the call, or the context in which to run the function unguarded.

    Raises only before anything has run.
    """
    payload = terms.payload(args, kwargs)
    if (switch.overrides or environ.get(switch.VARIABLE)) and not switch.enabled():
        switch.warn_once()
        off: CurrentOperation = extended(CurrentOperation)(
            Unstored(terms.scope, key or best_effort_key(terms, payload))
        )
        return off
    if key is None:
        key = key_of(terms, payload)
    if key is None:
        go_without_key(terms)
        return Unguarded()
    return RunningCall(plan_of(terms), args, kwargs, payload, key, reports=reports)


def run(
    terms: FunctionTerms,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    key: str | None = None,
    reports: bool = True,
) -> Answer:
    """Run a call, or replay the first one. `reports`: see `FunctionCall`.

    Raises `InProgress`, `RequestMismatch`, `ResponseNotStored`, `HeldForPerson`,
    `StoreUnavailable`, the function's own exceptions, and those of `AtomicOperation.settle`.
    """
    call = begin(terms, args, kwargs, key, reports)
    if isinstance(call, RunningCall):
        result = guarded(call, call.work)
        return Answer(result, replayed=call.replayed, guarded=not call.degraded)
    try:
        with call:
            return Answer(terms.function(*args, **kwargs), guarded=False)
    except BaseException:
        call._leave()  # noqa: SLF001 - ours, where an interrupt has cut it
        raise


async def arun(
    terms: FunctionTerms,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    key: str | None = None,
    reports: bool = True,
) -> Answer:
    """See run(). A cancellation never frees a key early."""
    call = begin(terms, args, kwargs, key, reports)
    if isinstance(call, RunningCall):
        await arefuse_open_transactions()
        result = await aguarded(call, call.awork)
        return Answer(result, replayed=call.replayed, guarded=not call.degraded)
    try:
        with call:
            return Answer(await terms.function(*args, **kwargs), guarded=False)
    except BaseException:
        call._leave()  # noqa: SLF001 - ours, where an interrupt has cut it
        raise
