"""What OpenAPI says of a guarded operation. Works on the operation as a dict, whatever has generated it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

from ..core.policy import Policy
from ..errors import Problem
from ..http import problems, status
from .policies import problems_of, published

#: `refer(kind, name, component)` keeps a component under "#/components/<kind>/<name>", and returns a reference to it.
Refer = Callable[[str, str, dict[str, Any]], dict[str, Any]]

_EXAMPLE = "8e03978e-40d5-43e8-bc93-6894a57f9324"
_TEXT = {"type": "string"}

#: The response header → what it says. Our errors carry the first one only.
HEADERS: dict[str, tuple[str, dict[str, Any]]] = {
    status.HEADER: (
        "What has become of the key.",
        {**_TEXT, "enum": [known.value for known in status.HeaderStatus]},
    ),
    status.REPLAYED: ("This is the response of an earlier request with the same key.", {**_TEXT, "enum": ["true"]}),
    status.ORIGINAL: ("The id of the request that did the work.", _TEXT),
}

PROBLEM = {
    "type": "object",
    "description": "An error of the idempotency key, as a problem document (RFC 9457).",
    "properties": {
        "type": {**_TEXT, "format": "uri-reference"},
        "title": _TEXT,
        "status": {"type": "integer"},
        "detail": _TEXT,
        "code": {**_TEXT, "description": "Stable, for programs."},
    },
    "required": ["type", "title", "status", "detail", "code"],
}


def describe(operation: dict[str, Any], policy: Policy, refer: Refer, *, documents: bool = True) -> dict[str, Any]:
    """Return an operation with its key, the responses to it, and the policy as `x-idempotency`.

    Nothing that the operation says itself is replaced. `documents`: are our errors problem documents, and not what the
    project's own exception handler makes of them?
    """
    terms = published(policy)
    return {
        **operation,
        "parameters": _parameters(operation.get("parameters", []), terms, refer),
        "responses": _responses(operation.get("responses", {}), policy, refer, documents=documents),
        "x-idempotency": terms,
        "x-fern-idempotent": True,
    }


def _parameters(known: list[dict[str, Any]], terms: dict[str, Any], refer: Refer) -> list[dict[str, Any]]:
    carrier = terms["carrier"]
    named = {(each.get("in"), str(each.get("name", "")).lower()) for each in known}
    if (carrier["in"], carrier["name"].lower()) in named:
        return known
    required = terms["required"] and not terms["derived"]
    key = {
        "in": carrier["in"],
        "name": carrier["name"],
        "required": required,
        "description": "Makes the request safe to repeat: send a new key with each operation, and the same one with its "
        "retries.",
        "schema": {**_TEXT, **terms["format"]},
        "example": _EXAMPLE,
    }
    shared = terms["format"]["minLength"] > 1
    name = f"{'Required' if required else ''}{'Long' if shared else ''}IdempotencyKey"
    return [*known, refer("parameters", name, key)]


def _responses(known: dict[str, Any], policy: Policy, refer: Refer, *, documents: bool) -> dict[str, Any]:
    found = {
        code: {**response, "headers": {**_headers(HEADERS, refer), **response.get("headers", {})}}
        if str(code).startswith("2") and "$ref" not in response
        else response
        for code, response in known.items()
    }
    possible = sorted(problems_of(policy), key=lambda problem: problem.status)
    for code, of_status in groupby(possible, key=lambda problem: problem.status):
        if str(code) not in {str(each) for each in known}:
            found[str(code)] = _refusal(list(of_status), refer, documents=documents)
    return found


def _refusal(possible: list[type[Problem]], refer: Refer, *, documents: bool) -> dict[str, Any]:
    response: dict[str, Any] = {
        "description": "\n".join(f"- `{problem.code}`: {_summary(problem)}" for problem in possible),
        "headers": _headers([status.HEADER], refer),
    }
    if any(problem.retry_after for problem in possible):
        seconds = {"schema": {"type": "integer", "minimum": 1}, "description": "Seconds until a retry makes sense."}
        response["headers"]["Retry-After"] = refer("headers", "RetryAfter", seconds)
    if documents:
        examples = {
            problem.code: {"summary": problem.title, "value": problems.document(problem())} for problem in possible
        }
        schema = refer("schemas", "IdempotencyProblem", PROBLEM)
        response["content"] = {"application/problem+json": {"schema": schema, "examples": examples}}
    return response


def _headers(names: Iterable[str], refer: Refer) -> dict[str, Any]:
    return {
        name: refer("headers", name.replace("-", ""), {"description": HEADERS[name][0], "schema": HEADERS[name][1]})
        for name in names
    }


def _summary(problem: type[Problem]) -> str:
    return " ".join(inspect.cleandoc(problem.__doc__ or "").split("\n\n")[0].split())
