"""Which records are held here, now."""

from __future__ import annotations

from contextvars import ContextVar
from uuid import UUID

#: (alias, record) of what this thread or task holds. A row lock does not stop its own transaction.
HELD: ContextVar[frozenset[tuple[str, UUID]]] = ContextVar("django_idempotency_held", default=frozenset())


def held_aliases() -> set[str]:
    """Return the databases on which a record is held here."""
    return {alias for alias, _ in HELD.get()}
