"""What OpenAPI says of a guarded operation.

Works on the operation as a dict, whatever has generated it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from copy import deepcopy
from itertools import groupby
from typing import Any

from ... import Policy, conf
from ...api import Default, Dialect
from ...core.dialects import PROBLEM_JSON
from ...core.standings import OperationState, standing
from ...core.statuses import HeaderStatus
from ...errors import RETRIES, Problem
from ...http import exchange, problems
from ...http.problems import members
from .policies import problems_of, published

_TEXT = {"type": "string"}

_Headers = dict[str, dict[str, Any]]


def headers_of(profile: Dialect) -> _Headers:
    """Return what the headers of a view's response say, by name.

    Our errors carry the first one only.
    """
    statuses = [known.value for known in HeaderStatus]
    found = {
        exchange.HEADER: {
            "description": "What has become of the key.",
            "schema": {**_TEXT, "enum": statuses},
        }
    }
    if profile.marker:
        said = "This is the response of an earlier request with the same key."
        found[profile.marker] = {"description": said, "schema": {**_TEXT, "enum": ["true"]}}
    if profile.original:
        found[profile.original] = {
            "description": "The id of the request that did the work.",
            "schema": _TEXT,
        }
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
        "retry": {**_TEXT, "enum": list(RETRIES), "description": "What the client does next."},
        "operation_ref": {
            **_TEXT,
            "description": "Names the operation to support. On every problem about a known key, "
            "with the "
            "two below.",
        },
        "operation_state": {
            **_TEXT,
            "enum": [state.value for state in OperationState],
            "description": "What is known of the operation.",
        },
        "safe_new_key": {
            "type": "boolean",
            "description": "Is it proven that a new key repeats nothing? At present it never is, "
            "so this "
            "is false.",
        },
    },
    "required": ["type", "title", "status", "detail", "code"],
}


def describe(
    operation: dict[str, Any],
    policy: Policy,
    refer: Refer,
    *,
    documents: bool = True,
    varies: bool = False,
) -> dict[str, Any]:
    """Return an operation with its key, the responses to it, and the policy as `x-idempotency`.

    Nothing that the operation says itself is replaced. `documents`: are our errors problem
    documents, and not what the project's own exception handler makes of them? `varies`: see
    `published()`.
    """
    terms = published(policy, varies=varies)
    profile = conf.resolve(policy).profile

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


def _responses(
    known: dict[str, Any], policy: Policy, refer: Refer, *, documents: bool
) -> dict[str, Any]:
    profile = conf.resolve(policy).profile
    headers = headers_of(profile)
    found = {
        code: {**response, "headers": {**_headers(headers, refer), **response.get("headers", {})}}
        if str(code).startswith("2") and "$ref" not in response
        else response
        for code, response in known.items()
    }
    possible = sorted(problems_of(policy), key=profile.status_of)
    for code, of_status in groupby(possible, key=profile.status_of):
        if str(code) not in {str(each) for each in known}:
            found[str(code)] = _refusal(list(of_status), profile, refer, documents=documents)
    return found


def _refusal(
    possible: list[type[Problem]], profile: Dialect, refer: Refer, *, documents: bool
) -> dict[str, Any]:
    response: dict[str, Any] = {
        "description": "\n".join(
            f"- `{problem.code}`: {_summary(problem)}" for problem in possible
        ),
        "headers": _headers({exchange.HEADER: headers_of(profile)[exchange.HEADER]}, refer),
    }
    if any(problem.retry_after for problem in possible):
        seconds = {
            "schema": {"type": "integer", "minimum": 1},
            "description": "Seconds until a retry makes sense.",
        }
        response["headers"]["Retry-After"] = refer("headers", "RetryAfter", seconds)
    if documents:
        examples = {
            problem.code: {
                "summary": problem.title,
                "value": problems.body_of(example_of(problem), profile, None),
            }
            for problem in possible
        }
        schema: dict[str, Any] = {"type": "object"}
        if profile.error_type == PROBLEM_JSON:
            # A copy: what drf-spectacular does to enums, it does in place.
            schema = refer("schemas", "IdempotencyProblem", deepcopy(PROBLEM))
        response["content"] = {profile.error_type: {"schema": schema, "examples": examples}}
    return response


def _headers(headers: _Headers, refer: Refer) -> dict[str, Any]:
    return {
        name: refer("headers", name.replace("-", ""), header) for name, header in headers.items()
    }


def _summary(problem: type[Problem]) -> str:
    return " ".join(inspect.cleandoc(problem.__doc__ or "").split("\n\n")[0].split())


# ---------------------------------------------------- the key: a parameter, or a member of the body

#: `refer(kind, name, component)` keeps a component under "#/components/<kind>/<name>", and returns
#: a reference to it.
Refer = Callable[[str, str, dict[str, Any]], dict[str, Any]]

#: The version of a UUID → one.
_EXAMPLES = {4: "8e03978e-40d5-43e8-bc93-6894a57f9324", 7: "019a9d3c-7c00-7e8d-bc93-6894a57f9324"}
# Dialects read this: it is for the validators of clients and gateways. A header has no comma
# outside quotes.
_PLAIN = "^[!-~]([ -~]*[!-~])?$"
_BARE = r"[!-+\x2D-~]([ -+\x2D-~]*[!-+\x2D-~])?"
_UNQUOTED = r"[!#-+\x2D-~]([ !#-+\x2D-~]*[!#-+\x2D-~])?"
_QUOTED = r'"([ !#-\[\]-~]|\\["\\])+"'
_MEANING = (
    "Makes the request safe to repeat: send a new key with each operation, and the same one "
    "with its retries."
)


def parameters(
    known: list[dict[str, Any]], terms: dict[str, Any], profile: Dialect, refer: Refer
) -> list[dict[str, Any]]:
    """Return the parameters of an operation with the key, if it is one.

    `terms` are what is published of the policy.
    """
    carrier = terms["carrier"]
    named = {(each.get("in"), str(each.get("name", "")).lower()) for each in known}
    if carrier["in"] == "body" or (carrier["in"], carrier["name"].lower()) in named:
        return known
    required = is_required(terms)
    key = {
        "in": carrier["in"],
        "name": carrier["name"],
        "required": required,
        "description": _MEANING,
        "schema": _schema(terms, profile),
    }
    quoted = carrier.get("spelling") == "quoted"
    version = terms["format"].get("x-uuid-version")
    example = _EXAMPLES.get(version, _EXAMPLES[4])
    # Otherwise only the project knows one.
    if re.search(terms["format"].get("pattern", ""), example):
        key["example"] = f'"{example}"' if quoted else example
    kind = (
        f"UUID{version or ''}"
        if "format" in terms["format"]
        else "Long"
        if terms["format"]["minLength"] > 1
        else ""
    )
    name = f"{'Required' if required else ''}{kind}{_prefix(profile)}IdempotencyKey"
    # The next route may have another pattern, so a component of this name would not be shared.
    found = [*known, key if "pattern" in terms["format"] else refer("parameters", name, key)]
    if profile.first_sent_field is not None:
        sent = {
            "in": "header",
            "name": profile.first_sent_field,
            "required": required,
            "description": "When the client first sent this request: it comes with every "
            f"{profile.field}.",
            "schema": _TEXT,
            "example": "Tue, 15 Nov 1994 08:12:31 GMT",
        }
        name = f"{'Required' if required else ''}{_prefix(profile)}FirstSent"
        found.append(refer("parameters", name, sent))
    return found


def _schema(terms: dict[str, Any], profile: Dialect) -> dict[str, Any]:
    """Return the schema of a parameter: of what is sent, which in quotes is longer than the key."""
    wanted = terms["format"]
    if profile.carrier == "query" or profile.spelling == "opaque":
        return {**_TEXT, "pattern": _PLAIN, **wanted}
    if profile.spelling == "quoted":
        return {**_TEXT, "pattern": f"^{_QUOTED}$"}
    if "format" in wanted:
        return {**_TEXT, **wanted}
    spelled = _BARE if profile.spelling == "bare" else _UNQUOTED
    if profile.spelling == "either" and wanted["minLength"] == 1:
        spelled = f"({spelled}|{_QUOTED})"
    return {**_TEXT, "pattern": f"^{spelled}$", **wanted}


def body(operation: dict[str, Any], terms: dict[str, Any]) -> dict[str, Any]:
    """Return `requestBody` with the key as a member, if it is one; else nothing."""
    known = operation.get("requestBody", {})
    name = terms["carrier"]["name"]
    if terms["carrier"]["in"] != "body" or not known.get("content"):
        return {}
    required = [name] if is_required(terms) else []
    key = {"description": _MEANING, **_TEXT, "pattern": _PLAIN, **terms["format"]}
    content = {
        kind: {**media, "schema": _with(media.get("schema", {}), name, key, required)}
        for kind, media in known["content"].items()
    }
    return {"requestBody": {**known, "content": content}}


def _with(
    schema: dict[str, Any], name: str, member: dict[str, Any], required: list[str]
) -> dict[str, Any]:
    """Return the schema of an object with one member more. One that it has itself stays."""
    known = schema.get("properties", {})
    if name in known:
        return schema
    if known:
        return {
            **schema,
            "properties": {**known, name: member},
            **({"required": [*schema.get("required", []), *required]} if required else {}),
        }
    more = {
        "type": "object",
        "properties": {name: member},
        **({"required": required} if required else {}),
    }
    return {"allOf": [schema, more]} if schema else more


def is_required(terms: dict[str, Any]) -> bool:
    return bool(terms.get("required") and not terms["derived"])


def _prefix(profile: Dialect) -> str:
    """Return what distinguishes a profile's components from those of the default one."""
    return (
        "" if profile.name == Default.name else "".join(filter(str.isalnum, profile.name.title()))
    )


#: The reference to an operation that does not exist.
EXAMPLE = "op_a4eascqlbqgq4dyqcejbgfavcylrqgi2dmob2hq7"


def example_of(kind: type[Problem]) -> Problem:
    """Return a problem for a schema."""
    problem = kind()
    state = standing(kind)
    if state is not None:
        problem.extensions |= members(EXAMPLE, state)
    return problem
