"""What OpenAPI says of a guarded operation. Works on the operation as a dict, whatever has generated it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from itertools import groupby
from typing import Any

from .. import conf
from ..core.policy import Policy
from ..core.standings import OperationState
from ..errors import Problem
from ..http import problems, status
from ..http.references import example_of
from ..profiles import Profile
from ..profiles.shipped import DEFAULT
from .policies import problems_of, published

#: `refer(kind, name, component)` keeps a component under "#/components/<kind>/<name>", and returns a reference to it.
Refer = Callable[[str, str, dict[str, Any]], dict[str, Any]]

#: The version of a UUID → one.
_EXAMPLES = {4: "8e03978e-40d5-43e8-bc93-6894a57f9324", 7: "019a9d3c-7c00-7e8d-bc93-6894a57f9324"}
_TEXT = {"type": "string"}

_Headers = dict[str, dict[str, Any]]


def headers_of(profile: Profile) -> _Headers:
    """Return what the headers of a view's response say, by name. Our errors carry the first one only."""
    statuses = [known.value for known in status.HeaderStatus]
    found = {status.HEADER: {"description": "What has become of the key.", "schema": {**_TEXT, "enum": statuses}}}
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
            "description": "Is it proven that nothing of the operation was carried out? Otherwise a new key may repeat it.",
        },
    },
    "required": ["type", "title", "status", "detail", "code"],
}


def describe(operation: dict[str, Any], policy: Policy, refer: Refer, *, documents: bool = True) -> dict[str, Any]:
    """Return an operation with its key, the responses to it, and the policy as `x-idempotency`.

    Nothing that the operation says itself is replaced. `documents`: are our errors problem documents, and not what the
    project's own exception handler makes of them?
    """
    terms, profile = published(policy), conf.resolve(policy).profile
    return {
        **operation,
        "parameters": _parameters(operation.get("parameters", []), terms, profile, refer),
        "responses": _responses(operation.get("responses", {}), policy, refer, documents=documents),
        "x-idempotency": terms,
        "x-fern-idempotent": True,
    }


def _parameters(
    known: list[dict[str, Any]], terms: dict[str, Any], profile: Profile, refer: Refer
) -> list[dict[str, Any]]:
    carrier = terms["carrier"]
    named = {(each.get("in"), str(each.get("name", "")).lower()) for each in known}
    if carrier["in"] == "body" or (carrier["in"], carrier["name"].lower()) in named:
        return known
    required = terms["required"] and not terms["derived"]
    key = {
        "in": carrier["in"],
        "name": carrier["name"],
        "required": required,
        "description": "Makes the request safe to repeat: send a new key with each operation, and the same one with its "
        "retries.",
        "schema": {**_TEXT, **terms["format"]},
    }
    version = terms["format"].get("x-uuid-version")
    example = _EXAMPLES.get(version, _EXAMPLES[4])
    if re.search(terms["format"].get("pattern", ""), example):  # otherwise only the project knows one
        key["example"] = example
    kind = f"UUID{version or ''}" if "format" in terms["format"] else "Long" if terms["format"]["minLength"] > 1 else ""
    name = f"{'Required' if required else ''}{kind}{_prefix(profile)}IdempotencyKey"
    # The next route may have another pattern, so a component of this name would not be shared.
    found = [*known, key if "pattern" in terms["format"] else refer("parameters", name, key)]
    if profile.first_sent_field is not None:
        sent = {
            "in": "header",
            "name": profile.first_sent_field,
            "required": required,
            "description": f"When the client first sent this request: it comes with every {profile.field}.",
            "schema": _TEXT,
            "example": "Tue, 15 Nov 1994 08:12:31 GMT",
        }
        name = f"{'Required' if required else ''}{_prefix(profile)}FirstSent"
        found.append(refer("parameters", name, sent))
    return found


def _prefix(profile: Profile) -> str:
    """Return what distinguishes a profile's components from those of the default one."""
    return "" if profile.name == DEFAULT.name else "".join(filter(str.isalnum, profile.name.title()))


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
        "headers": _headers({status.HEADER: headers_of(profile)[status.HEADER]}, refer),
    }
    if "Retry-After" in profile.retry_headers and any(problem.retry_after for problem in possible):
        seconds = {"schema": {"type": "integer", "minimum": 1}, "description": "Seconds until a retry makes sense."}
        response["headers"]["Retry-After"] = refer("headers", "RetryAfter", seconds)
    if documents:
        examples = {
            problem.code: {"summary": problem.title, "value": problems.document(example_of(problem), profile)}
            for problem in possible
        }
        if profile.errors == "problem":
            schema = refer("schemas", "IdempotencyProblem", PROBLEM)
            response["content"] = {"application/problem+json": {"schema": schema, "examples": examples}}
        else:
            response["content"] = {"application/json": {"schema": {"type": "object"}, "examples": examples}}
    return response


def _headers(headers: _Headers, refer: Refer) -> dict[str, Any]:
    return {name: refer("headers", name.replace("-", ""), header) for name, header in headers.items()}


def _summary(problem: type[Problem]) -> str:
    return " ".join(inspect.cleandoc(problem.__doc__ or "").split("\n\n")[0].split())
