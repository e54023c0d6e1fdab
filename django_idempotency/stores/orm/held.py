"""The records that this thread or task holds."""

from __future__ import annotations

from contextvars import ContextVar
from uuid import UUID


class Held:
    """A record that a guard holds. A task or thread started meanwhile sees it as long as that lives."""

    __slots__ = ("name", "over")

    def __init__(self, alias: str, record: UUID) -> None:
        self.name = (alias, record)
        #: Has its guard ended?
        self.over = False


#: What this thread or task holds. A row lock does not stop its own transaction.
HELD: ContextVar[frozenset[Held]] = ContextVar("django_idempotency_held", default=frozenset())
