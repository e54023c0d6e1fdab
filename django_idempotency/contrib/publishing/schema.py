"""What OpenAPI says of a guarded operation. Works on the operation as a dict, whatever has generated it."""

from __future__ import annotations

import inspect
from copy import deepcopy
from itertools import groupby
from typing import Any

from ... import conf
from ...core.policy import Policy
from ...core.profiles import Profile
from ...core.standings import OperationState
from ...errors import Problem
from ...http import exchange, problems
from ...http.error_bodies import DOCUMENTS
from ...http.references import example_of
from .policies import problems_of, published
from .schema_keys import Refer, body, parameters

_TEXT = {"type": "string"}

_Headers = dict[str, dict[str, Any]]


def headers_of(profile: Profile) -> _Headers:
    """Return what the headers of a view's response say, by name. Our errors carry the first one only."""
    statuses = [known.value for known in exchange.HeaderStatus]
    found = {exchange.HEADER: {"description": "What has become of the key.", "schema": {**_TEXT, "enum": statuses}}}
    if profile.marker:
        said = "This is the response of an earlier request with the same key."
        found[profile.marker] = {"description": said, "schema": {**_TEXT, "enum": ["true"]}}
    if profile.original:
        found[profile.original] = {"description": "The id of the request that did the work.", "schema": _TEXT}
    return found


PROBLEM = {
    "type": "object",
    "description": "An error of the idempotency key, as a problem document (RFC 9457).",
    "properties": {
        "type": {**_TEXT, "format": "uri-reference"},
        "title": _TEXT,
        "status": {"type": "integer"},
        "detail": _TEXT,
        "code": {**_TEXT, "description": "Stable, for programs."},
        "operation_ref": {
            **_TEXT,
            "description": "Names the operation to support. On every problem about a known key, with the two below.",
        },
        "operation_state": {
            **_TEXT,
            "enum": [state.value for state in OperationState],
            "description": "What is known of the operation.",
        },
        "safe_new_key": {
            "type": "boolean",
            "description": "Is it proven that a new key repeats nothing? At present it never is, so this is false.",
        },
    },
    "required": ["type", "title", "status", "detail", "code"],
}


def describe(
    operation: dict[str, Any], policy: Policy, refer: Refer, *, documents: bool = True, varies: bool = False
) -> dict[str, Any]:
    """Return an operation with its key, the responses to it, and the policy as `x-idempotency`.

    Nothing that the operation says itself is replaced. `documents`: are our errors problem documents, and not what the
    project's own exception handler makes of them? `varies`: see `published()`.
    """
    terms, profile = published(policy, varies=varies), conf.resolve(policy).profile

    def keep(kind: str, name: str, component: dict[str, Any]) -> dict[str, Any]:
        return refer(kind, name, deepcopy(component))  # generators change what they are given

    return {
        **operation,
        "parameters": parameters(operation.get("parameters", []), terms, profile, keep),
        **body(operation, terms),
        "responses": _responses(operation.get("responses", {}), policy, keep, documents=documents),
        "x-idempotency": terms,
        "x-fern-idempotent": True,
    }


def _responses(known: dict[str, Any], policy: Policy, refer: Refer, *, documents: bool) -> dict[str, Any]:
    profile = conf.resolve(policy).profile
    headers = headers_of(profile)
    found = {
        code: {**response, "headers": {**_headers(headers, refer), **response.get("headers", {})}}
        if str(code).startswith("2") and "$ref" not in response
        else response
        for code, response in known.items()
    }
    possible = sorted(problems_of(policy), key=lambda problem: problems.status_of(problem, profile))
    for code, of_status in groupby(possible, key=lambda problem: problems.status_of(problem, profile)):
        if str(code) not in {str(each) for each in known}:
            found[str(code)] = _refusal(list(of_status), profile, refer, documents=documents)
    return found


def _refusal(possible: list[type[Problem]], profile: Profile, refer: Refer, *, documents: bool) -> dict[str, Any]:
    response: dict[str, Any] = {
        "description": "\n".join(f"- `{problem.code}`: {_summary(problem)}" for problem in possible),
        "headers": _headers({exchange.HEADER: headers_of(profile)[exchange.HEADER]}, refer),
    }
    if "Retry-After" in profile.retry_headers and any(problem.retry_after for problem in possible):
        seconds = {"schema": {"type": "integer", "minimum": 1}, "description": "Seconds until a retry makes sense."}
        response["headers"]["Retry-After"] = refer("headers", "RetryAfter", seconds)
    if documents:
        examples = {
            problem.code: {"summary": problem.title, "value": problems.document(example_of(problem), profile)}
            for problem in possible
        }
        if profile.errors in DOCUMENTS:
            # A copy: what drf-spectacular does to enums, it does in place.
            schema = refer("schemas", "IdempotencyProblem", deepcopy(PROBLEM))
            response["content"] = {"application/problem+json": {"schema": schema, "examples": examples}}
        else:
            response["content"] = {"application/json": {"schema": {"type": "object"}, "examples": examples}}
    return response


def _headers(headers: _Headers, refer: Refer) -> dict[str, Any]:
    return {name: refer("headers", name.replace("-", ""), header) for name, header in headers.items()}


def _summary(problem: type[Problem]) -> str:
    return " ".join(inspect.cleandoc(problem.__doc__ or "").split("\n\n")[0].split())
