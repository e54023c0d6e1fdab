"""The bodies of our errors, in the shape that an API's clients parse. No key, no stored body, no stack."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .. import conf
from ..errors import Problem

#: Begins the `type` of a problem while PROBLEM_DOCS names no page. A name, not an address: it resolves to nothing.
NAMESPACE = "urn:django-idempotency:problem:"


def docs_url(problem: Problem) -> str | None:
    """Return the address of the section about a problem; `None`: the project has not set PROBLEM_DOCS."""
    page = conf.get("PROBLEM_DOCS")
    return None if page is None else f"{page}#{problem.code}"


def detail(problem: Problem) -> str:
    """Return the message of a problem on one line."""
    return " ".join(str(problem).split())


def _word(problem: Problem) -> str:
    return problem.code.replace("-", "_")


def _problem(problem: Problem, status: int) -> dict[str, Any]:
    """Make a problem document (RFC 9457)."""
    return {
        "type": docs_url(problem) or NAMESPACE + problem.code,
        "title": problem.title,
        "status": status,
        "detail": detail(problem),
        "code": problem.code,
        **problem.extensions,
    }


def _stripe(problem: Problem, status: int) -> dict[str, Any]:
    codes = {"in-progress": "idempotency_key_in_use"}
    kinds = {"in-progress": "idempotency_error", "request-mismatch": "idempotency_error"}
    kind = kinds.get(problem.code, "api_error" if status >= 500 else "invalid_request_error")
    error = {"type": kind, "code": codes.get(problem.code, _word(problem)), "message": detail(problem)}
    return {"error": {**error, **({"doc_url": url} if (url := docs_url(problem)) else {})}}


def _adyen(problem: Problem, status: int) -> dict[str, Any]:
    code = "704" if problem.code == "in-progress" else _word(problem)
    kind = "internal" if status >= 500 else "validation"
    return {"status": status, "errorCode": code, "message": detail(problem), "errorType": kind}


def _paypal(problem: Problem, status: int) -> dict[str, Any]:
    names = {
        400: "INVALID_REQUEST",
        403: "NOT_AUTHORIZED",
        409: "RESOURCE_CONFLICT",
        422: "UNPROCESSABLE_ENTITY",
        503: "SERVICE_UNAVAILABLE",
    }
    issues = {"in-progress": "PREVIOUS_REQUEST_IN_PROGRESS"}
    return {
        "name": names.get(status, "INTERNAL_SERVER_ERROR" if status >= 500 else "INVALID_REQUEST"),
        "message": problem.title,
        "details": [{"issue": issues.get(problem.code, _word(problem).upper()), "description": detail(problem)}],
    }


def _square(problem: Problem, status: int) -> dict[str, Any]:
    codes = {
        "key-missing": "MISSING_REQUIRED_PARAMETER",
        "key-malformed": "INVALID_VALUE",
        "request-mismatch": "IDEMPOTENCY_KEY_REUSED",
        "in-progress": "CONFLICT",
        "store-unavailable": "SERVICE_UNAVAILABLE",
    }
    category = "API_ERROR" if status >= 500 else "INVALID_REQUEST_ERROR"
    code = codes.get(problem.code, _word(problem).upper())
    return {"errors": [{"category": category, "code": code, "detail": detail(problem)}]}


def _odata(problem: Problem, status: int) -> dict[str, Any]:  # noqa: ARG001 - every shape gets both
    words = "".join(word.capitalize() for word in problem.code.split("-"))
    return {"error": {"code": words, "message": detail(problem)}}


def _google(problem: Problem, status: int) -> dict[str, Any]:
    canonical = {
        400: "INVALID_ARGUMENT",
        403: "PERMISSION_DENIED",
        409: "ABORTED",
        500: "INTERNAL",
        501: "UNIMPLEMENTED",
        503: "UNAVAILABLE",
    }
    name = canonical.get(status, "INTERNAL" if status >= 500 else "FAILED_PRECONDITION")
    return {"error": {"code": status, "message": detail(problem), "status": name}}


def _iceberg(problem: Problem, status: int) -> dict[str, Any]:
    words = "".join(word.capitalize() for word in problem.code.split("-"))
    return {"error": {"message": detail(problem), "type": f"{words}Exception", "code": status}}


#: The names in a profile's `errors` under which a program gets a problem document.
DOCUMENTS = ("problem", "page")

#: By the name in a profile's `errors`.
SHAPES: Mapping[str, Callable[[Problem, int], Mapping[str, Any]]] = {
    "problem": _problem,
    "page": _problem,  # for whom no page is meant: see error_pages
    "adyen": _adyen,
    "google": _google,
    "iceberg": _iceberg,
    "odata": _odata,
    "paypal": _paypal,
    "square": _square,
    "stripe": _stripe,
}
