"""The key in the document: `@idempotent(key: …)` on the root field of a mutation, as clients of
Shopify send it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from django.http import HttpRequest
from graphql import (
    DirectiveLocation,
    FieldNode,
    GraphQLArgument,
    GraphQLDirective,
    GraphQLNonNull,
    GraphQLString,
    OperationDefinitionNode,
    OperationType,
    get_directive_values,
    get_operation_ast,
    parse,
    value_from_ast_untyped,
)

from ...http.bodies import is_json
from ...http.markers import view_class
from .kind import is_strawberry, library_view

#: The directive, for the `directives` of a schema of graphene.
IDEMPOTENT = GraphQLDirective(
    name="idempotent",
    locations=[DirectiveLocation.FIELD],
    args={
        "key": GraphQLArgument(
            GraphQLNonNull(GraphQLString), description="The same for each retry."
        )
    },
    description="Makes the mutation safe to send again.",
)


def directive_key(request: HttpRequest) -> Any:
    """Return the key of a GraphQL request, for `@idempotent(key=directive_key, …)` on its view.

    That is the `key` of the directive on the mutation's root field; a list of them, if there are
    several fields or a batch; `None` unless each has one, and for a body that cannot be read. A
    directive inside a fragment at the root is not read: then it is `None`, too.
    """
    try:
        keys = [key for entry in _entries(request) for key in _keys(entry)]
    except Exception:  # noqa: BLE001 - not GraphQL: the view reports it
        return None
    if not keys or any(not isinstance(key, str) or key == "" for key in keys):
        return None
    return keys[0] if len(keys) == 1 else keys


def _entries(request: HttpRequest) -> list[Any]:
    """Return what each operation of a request consists of: `query`, `variables` and
    `operationName`.

    In graphene those of the address go first, for each operation of a batch too; strawberry does
    not read them.
    """
    match = getattr(request, "resolver_match", None)
    library = library_view(view_class(getattr(match, "func", None)))
    first = {} if library is not None and is_strawberry(library) else _given(request.GET)
    return [{**entry, **first} for entry in _sent(request)]


def _sent(request: HttpRequest) -> list[Any]:
    content_type = (request.content_type or "").lower()
    if content_type == "application/graphql":
        return [{"query": request.body.decode()}]
    if not is_json(content_type):
        return [request.POST.dict()]
    data = json.loads(request.body)
    return data if isinstance(data, list) else [data]


def _given(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name in ("query", "variables", "operationName")
        if (value := parameters.get(name))
    }


def _keys(entry: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the key of each root field of a mutation; `None` for one without."""
    name = entry.get("operationName")
    operation = get_operation_ast(parse(entry["query"]), None if name in ("", "null") else name)
    if operation is None:
        yield None
    elif operation.operation is OperationType.MUTATION:
        variables = _variables(operation, entry.get("variables") or {})
        for field in operation.selection_set.selections:
            found = (
                get_directive_values(IDEMPOTENT, field, variables)
                if isinstance(field, FieldNode)
                else None
            )
            yield None if found is None else found["key"]


def _variables(operation: OperationDefinitionNode, sent: Any) -> dict[str, Any]:
    """Return the variables of an operation, as they were sent or by default.

    A form has them as JSON.
    """
    given = json.loads(sent) if isinstance(sent, str) else sent
    defaults = {
        each.variable.name.value: value_from_ast_untyped(each.default_value)
        for each in operation.variable_definitions
        if each.default_value is not None
    }
    return {**defaults, **(given or {})}
