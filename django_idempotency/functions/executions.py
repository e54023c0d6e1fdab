"""The durable execution around a call, as far as a call asks it.

Whoever knows executions sets it: `contrib.steps.durable`.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Protocol
from uuid import UUID

from ..engine.lease import LeaseOperation
from ..engine.operation import Operation
from ..stores.base import Audit, BaseStore


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
