"""The operations of a GraphQL request, read as the view itself reads them.

Only a request that provably changes nothing runs unguarded. One that cannot be read, such as a persisted query, is
guarded.
"""

from __future__ import annotations

from typing import Any

from graphql import OperationType, get_operation_ast, parse


def changes_graphene(view: Any, request: Any) -> bool:
    """May a request to graphene's view change something? A batch has several operations."""
    try:
        data = view.parse_body(request)
        found = [view.get_graphql_params(request, entry) for entry in (data if view.batch else [data])]
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
    return any(changes(entry.query, entry.operation_name) for entry in (data if isinstance(data, list) else [data]))


def changes(query: Any, name: Any) -> bool:
    """May the operation in a document that `name` selects change something? One that cannot be read may."""
    try:
        operation = get_operation_ast(parse(query), name)
    except Exception:  # noqa: BLE001 - not text, not GraphQL, or nested too deep
        return True
    return operation is None or operation.operation is OperationType.MUTATION
