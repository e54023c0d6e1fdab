"""The step that runs here: steps set it, and outgoing calls take their name and key from it.

The durable execution around a call is here, too: `contrib.steps.durable` sets it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

from ..engine.lease import LeaseOperation
from ..engine.operation import Operation
from ..stores.base import Audit, BaseStore

#: Closes the calls of an operation's steps for good, given `RunningStep.operation`: the client half
#: adds itself. Returns whether none of them may be on its way.
CLOSERS: list[Callable[[str], bool]] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningStep:
    """One step while its body runs."""

    #: Unique in its operation.
    name: str
    #: 64 hex digits, the same on every attempt and takeover. An undo has its own.
    key: str
    #: Names the operation: the same on every attempt of one request, and another one while it is
    #: undone.
    operation: str
    #: Does it run in a transaction of the database, which its calls elsewhere would not share?
    transactional: bool
    #: May its calls still be sent? A ledger asks when it has written down an attempt, before it
    #: sends that. `None`: they may.
    may_send: Callable[[], bool] | None = field(default=None, compare=False, repr=False)
    #: Outgoing calls that took its name and have ended: a second one is another call, and needs a
    #: name of its own.
    answered: list[str] = field(default_factory=list, compare=False, repr=False)


#: The step whose body runs here.
CURRENT_STEP: ContextVar[RunningStep | None] = ContextVar(
    "django_idempotency_current_step", default=None
)


# ---------------------------------------------------------------------------- durable executions


class Execution(Protocol):
    """Work that is suspended by an exception in the middle of a call, and makes the same call again
    to resume it.
    """

    def suspends(self, error: BaseException) -> bool:
        """Does an exception suspend the execution?"""

    def operation(self, *given: Any, **options: Any) -> LeaseOperation:
        """Return the operation of a call in this execution, made like any other."""

    def is_suspended_in(self, operation: Operation) -> bool:
        """Has the store said that this execution is suspended in the call?

        Then it must not run without the store.
        """

    def release(self, store: BaseStore, record_id: UUID, *, audit: Audit, forgetting: bool) -> bool:
        """Free a key in which this execution is suspended.

        Return whether there was one. `forgetting`: as if never used.
        """


EXECUTION: ContextVar[Execution | None] = ContextVar("django_idempotency_execution", default=None)
