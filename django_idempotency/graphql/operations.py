"""What a GraphQL request asks for, read as the view itself reads it.

Only what is proven to change nothing runs without a guard. What cannot be read, a persisted query say, is guarded.
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
    #: May it do more than one thing: has it more than one field at its root?
    several: bool = False


#: An operation that cannot be read, so the view will refuse it, or find it elsewhere.
_UNREAD = Asked(changes=True)


def of_graphene(view: Any, request: Any) -> list[Asked]:
    """Return the operations of a request to graphene's view; a batch has several."""
    try:
        data = view.parse_body(request)
        found = [view.get_graphql_params(request, entry) for entry in (data if view.batch else [data])]
    except Exception:  # noqa: BLE001 - the view answers it
        return [_UNREAD]
    return [asked(query, name) for query, _, name, _ in found]


def of_strawberry(view: Any, request: Any) -> list[Asked]:
    """Return the operations of a request to strawberry's view; a batch has several."""
    try:
        return _of_data(view.parse_http_body(view.request_adapter_class(request)))
    except Exception:  # noqa: BLE001 - the view answers it
        return [_UNREAD]


async def aof_strawberry(view: Any, request: Any) -> list[Asked]:
    """See of_strawberry()."""
    try:
        return _of_data(await view.parse_http_body(view.request_adapter_class(request)))
    except Exception:  # noqa: BLE001 - the view answers it
        return [_UNREAD]


def _of_data(data: Any) -> list[Asked]:
    return [asked(entry.query, entry.operation_name) for entry in (data if isinstance(data, list) else [data])]


def asked(query: Any, name: Any) -> Asked:
    """Say what a document asks for; `name` chooses among its operations."""
    try:
        operation = get_operation_ast(parse(query), name)
    except Exception:  # noqa: BLE001 - no text, no GraphQL, nested too deep
        operation = None
    if operation is None:
        return _UNREAD
    fields = operation.selection_set.selections
    several = len(fields) != 1 or not isinstance(fields[0], FieldNode)
    return Asked(changes=operation.operation is OperationType.MUTATION, several=several)
