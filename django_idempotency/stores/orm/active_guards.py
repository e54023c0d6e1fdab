"""The guards that this thread or task has entered."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from .dialects.transactions import WorkTransaction


class ActiveGuard:
    """A guard and its record. A task or thread started inside inherits it, and may outlive it."""

    __slots__ = ("ended", "name", "transaction")

    def __init__(self, alias: str, record: UUID) -> None:
        self.name = (alias, record)
        self.ended = False
        #: The transaction that can settle the record with its COMMIT, if there is one.
        self.transaction: WorkTransaction | None = None


#: The guards of this thread or task. A row lock does not stop its own transaction.
ACTIVE_GUARDS: ContextVar[frozenset[ActiveGuard]] = ContextVar("django_idempotency_active_guards", default=frozenset())
