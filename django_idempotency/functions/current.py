"""A guarded function's view of its own call."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple

from ..core.policy import Resolved
from ..engine.deadlines import remaining
from ..engine.operation import Operation
from ..errors import ResponseNotStored
from ..runtime.current_step import CURRENT_STEP, RunningStep
from ..runtime.derivation import Unstored
from ..runtime.handle import OperationHandle


class BoundCall(NamedTuple):
    """A function, and what it is called with."""

    terms: Any  # FunctionTerms
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


class CurrentOperation(OperationHandle):
    """The call that runs under a key. `current_operation()` returns the innermost one."""

    _bound: BoundCall | None = None
    #: Has its work ended? A task that it started still sees it.
    _over = False
    _outer: CurrentOperation | None = None
    #: What was current before. It is restored by value: an interrupt may lose a token, or come when
    #: it was used.
    _previous: CurrentOperation | Unguarded | None = None
    _outer_step: RunningStep | None = None

    def __init__(
        self,
        operation: Operation,
        outer: CurrentOperation | None = None,
        policy: Resolved | None = None,
        bound: BoundCall | None = None,
    ) -> None:
        self._operation = operation
        self._policy = policy
        self._outer = outer
        self._bound = bound
        self.seconds = None
        self.is_held = False

    def __enter__(self) -> None:
        self._previous = CURRENT.get()
        self._outer_step = CURRENT_STEP.get()
        CURRENT.set(self)
        CURRENT_STEP.set(None)  # a call inside a step has steps of its own

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._leave()
        if isinstance(error, ResponseNotStored):
            error.inside = True  # it belongs to another call: this one is not done

    def _leave(self) -> None:
        """Make current what was before.

        May be called any number of times, and where it was never entered.
        """
        self._over = True
        # Not in another context, such as that of a task which closes this one's coroutine.
        if CURRENT.get() is self:
            CURRENT_STEP.set(self._outer_step)
            CURRENT.set(self._previous)
        # Otherwise a chain of tasks would hold all of them.
        self._previous = self._outer_step = None
        if self._outer is not None:
            self._outer = living(self._outer)

    @property
    def is_running(self) -> bool:
        """See OperationHandle."""
        return not self._over

    @property
    def lost(self) -> bool:
        """Has the `lease` of this call ended, or the host's deadline passed?

        If so, stop if that still helps.
        """
        return super().lost or remaining() == 0

    def holds(self, operation: Operation) -> bool:
        """Does this call, or one around it, run the same request under the same key of the same
        store?
        """
        if isinstance(self._operation, Unstored):
            return False
        ours = self._operation
        other = operation.ticket
        same = (ours.ticket.id, ours.ticket.digest) == (other.id, other.digest)
        mine = same and ours.store is operation.store
        return mine or (self._outer is not None and self._outer.holds(operation))


def living(call: CurrentOperation | None) -> CurrentOperation | None:
    """Return the call, or the innermost one around it, whose work has not ended."""
    while call is not None and call._over:  # noqa: SLF001 - its public members are for users
        call = call._outer  # noqa: SLF001
    return call


CURRENT: ContextVar[CurrentOperation | Unguarded | None] = ContextVar(
    "django_idempotency_current", default=None
)


def current_operation() -> CurrentOperation | None:
    """Return the innermost guarded call that runs here; `None` outside one, and in a call that runs
    unguarded.
    """
    current = CURRENT.get()
    return current if isinstance(current, CurrentOperation) else None


class Unguarded:
    """The context of a call that runs unguarded: it must not use the keys of a call around it."""

    _previous: CurrentOperation | Unguarded | None = None

    def __enter__(self) -> None:
        self._previous = CURRENT.get()
        CURRENT.set(self)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._leave()
        if isinstance(error, ResponseNotStored):
            error.inside = True

    def _leave(self) -> None:
        """See CurrentOperation._leave()."""
        if CURRENT.get() is self:
            CURRENT.set(self._previous)
        self._previous = None
