"""Whether a mutation was begun, by the word of graphql-core, which executes it.

A response does not say: a project may mask its errors, and an extension may raise after the work.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

from graphql import ExecutionContext, OperationType

_watched: ContextVar[Execution | None] = ContextVar("django_idempotency_graphql_execution", default=None)


class Execution:
    """What the library does for one request, as far as it is asked to while we watch."""

    #: Was it asked to execute anything? Otherwise nothing is known.
    was_asked = False
    #: Has it begun to execute a mutation? Before that it parses, validates, and reads the variables.
    has_begun = False

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch what the library does in this context."""
        self.was_asked = True
        token = _watched.set(self)
        try:
            yield
        finally:
            _watched.reset(token)


class _Watched(ExecutionContext):
    """Is made when an operation is about to be executed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        execution = _watched.get()
        if execution is not None and self.operation.operation is OperationType.MUTATION:
            execution.has_begun = True


@lru_cache(maxsize=16)
def watching(cls: type[ExecutionContext] | None) -> type[ExecutionContext]:
    """Return a subclass of a library's execution context that notes what it executes."""
    base = cls or ExecutionContext
    return base if issubclass(base, _Watched) else type(base.__name__, (_Watched, base), {})


@lru_cache(maxsize=16)
def watching_schema(schema: Any) -> Any:
    """Return a copy of strawberry's schema that notes what it executes; `None` for one that executes by code of its own."""
    if not all(
        getattr(type(schema), name).__module__.startswith("strawberry.") for name in ("execute", "execute_sync")
    ):
        return None
    found = copy.copy(schema)
    found.execution_context_class = watching(schema.execution_context_class)
    return found
