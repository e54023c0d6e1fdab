"""The operations of a GraphQL request, read as the view itself reads them, and whether one was
begun.

Only a request that provably changes nothing runs unguarded. One that cannot be read, such as a
persisted query, is guarded.
"""

from __future__ import annotations

import copy
from typing import Any

from graphql import ExecutionContext, OperationType, get_operation_ast, parse


def changes_graphene(view: Any, request: Any) -> bool:
    """May a request to graphene's view change something? A batch has several operations."""
    try:
        data = view.parse_body(request)
        found = [
            view.get_graphql_params(request, entry) for entry in (data if view.batch else [data])
        ]
    except Exception:  # noqa: BLE001 - the view reports it
        return True
    return any(changes(query, name) for query, _, name, _ in found)


def changes_strawberry(view: Any, request: Any) -> bool:
    """May a request to strawberry's view change something? A batch has several operations."""
    try:
        return _any_changes(view.parse_http_body(view.request_adapter_class(request)))
    except Exception:  # noqa: BLE001 - the view reports it
        return True


async def achanges_strawberry(view: Any, request: Any) -> bool:
    """See changes_strawberry()."""
    try:
        return _any_changes(await view.parse_http_body(view.request_adapter_class(request)))
    except Exception:  # noqa: BLE001 - the view reports it
        return True


def _any_changes(data: Any) -> bool:
    return any(
        changes(entry.query, entry.operation_name)
        for entry in (data if isinstance(data, list) else [data])
    )


def changes(query: Any, name: Any) -> bool:
    """May the operation in a document that `name` selects change something?

    One that cannot be read may.
    """
    try:
        operation = get_operation_ast(parse(query), name)
    except Exception:  # noqa: BLE001 - not text, not GraphQL, or nested too deep
        return True
    return operation is None or operation.operation is OperationType.MUTATION


class Execution:
    """What the library does for one request, as far as it is asked to while we watch, by the word
    of graphql-core.

    A response does not say whether a mutation was begun: a project may mask its errors, and an
    extension may raise after the work.
    """

    #: Was it asked to execute anything? Otherwise nothing is known.
    was_asked = False
    #: Has it begun to execute a mutation? Before that it parses, validates, and reads the
    #: variables.
    has_begun = False

    def watching(self, cls: type[ExecutionContext] | None) -> type[ExecutionContext]:
        """Return a subclass of a library's execution context that notes here what it executes, in
        any thread.
        """
        execution = self
        base = cls or ExecutionContext
        execution.was_asked = True

        class Watched(base):  # type: ignore[misc, valid-type]
            """Is made when an operation is about to be executed."""

            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, **kwargs)
                if self.operation.operation is OperationType.MUTATION:
                    execution.has_begun = True

        return Watched

    def watching_schema(self, schema: Any) -> Any:
        """Return a copy of strawberry's schema that notes what it executes; `None`: it executes by
        code of its own.
        """
        if not all(
            getattr(type(schema), name).__module__.startswith("strawberry.")
            for name in ("execute", "execute_sync")
        ):
            return None
        found = copy.copy(schema)
        found.execution_context_class = self.watching(schema.execution_context_class)
        return found
