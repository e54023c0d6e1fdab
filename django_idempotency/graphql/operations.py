"""The operations of a GraphQL request, read as the view itself reads them.

Only a request that provably changes nothing runs unguarded. One that cannot be read, such as a persisted query, is
guarded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from graphql import FieldNode, OperationType, get_operation_ast, parse


@dataclass(frozen=True, slots=True)
class Asked:
    """One operation of a request."""

    #: May it change something?
    changes: bool
    #: Does it have more than one root field, and so perhaps more than one effect?
    several: bool = False


#: An operation that cannot be read: the view will refuse it, or load it from elsewhere.
_UNREAD = Asked(changes=True)


def of_graphene(view: Any, request: Any) -> list[Asked]:
    """Return the operations of a request to graphene's view; a batch has several."""
    try:
        data = view.parse_body(request)
        found = [view.get_graphql_params(request, entry) for entry in (data if view.batch else [data])]
    except Exception:  # noqa: BLE001 - the view reports it
        return [_UNREAD]
    return [asked(query, name) for query, _, name, _ in found]


def of_strawberry(view: Any, request: Any) -> list[Asked]:
    """Return the operations of a request to strawberry's view; a batch has several."""
    try:
        return _of_data(view.parse_http_body(view.request_adapter_class(request)))
    except Exception:  # noqa: BLE001 - the view reports it
        return [_UNREAD]


async def aof_strawberry(view: Any, request: Any) -> list[Asked]:
    """See of_strawberry()."""
    try:
        return _of_data(await view.parse_http_body(view.request_adapter_class(request)))
    except Exception:  # noqa: BLE001 - the view reports it
        return [_UNREAD]


def _of_data(data: Any) -> list[Asked]:
    return [asked(entry.query, entry.operation_name) for entry in (data if isinstance(data, list) else [data])]


def asked(query: Any, name: Any) -> Asked:
    """Return the operation in a document that `name` selects."""
    try:
        operation = get_operation_ast(parse(query), name)
    except Exception:  # noqa: BLE001 - not text, not GraphQL, or nested too deep
        operation = None
    if operation is None:
        return _UNREAD
    fields = operation.selection_set.selections
    several = len(fields) != 1 or not isinstance(fields[0], FieldNode)
    return Asked(changes=operation.operation is OperationType.MUTATION, several=several)
