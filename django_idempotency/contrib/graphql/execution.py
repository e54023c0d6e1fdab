"""Whether a mutation was begun, by the word of graphql-core, which executes it.

A response does not say: a project may mask its errors, and an extension may raise after the work.
"""

from __future__ import annotations

import copy
from typing import Any

from graphql import ExecutionContext, OperationType


class Execution:
    """What the library does for one request, as far as it is asked to while we watch."""

    #: Was it asked to execute anything? Otherwise nothing is known.
    was_asked = False
    #: Has it begun to execute a mutation? Before that it parses, validates, and reads the variables.
    has_begun = False

    def watching(self, cls: type[ExecutionContext] | None) -> type[ExecutionContext]:
        """Return a subclass of a library's execution context that notes here what it executes, in any thread."""
        execution, base = self, cls or ExecutionContext
        execution.was_asked = True

        class Watched(base):  # type: ignore[misc, valid-type]
            """Is made when an operation is about to be executed."""

            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, **kwargs)
                if self.operation.operation is OperationType.MUTATION:
                    execution.has_begun = True

        return Watched

    def watching_schema(self, schema: Any) -> Any:
        """Return a copy of strawberry's schema that notes what it executes; `None`: it executes by code of its own."""
        if not all(
            getattr(type(schema), name).__module__.startswith("strawberry.") for name in ("execute", "execute_sync")
        ):
            return None
        found = copy.copy(schema)
        found.execution_context_class = self.watching(schema.execution_context_class)
        return found
