"""The bodies of our errors, in the shapes that the clients of these APIs parse: each is the
`errors` of a profile.
"""

from __future__ import annotations

from typing import Any

from ...errors import Problem
from ...http.problems import detail, docs_url


def _word(problem: Problem) -> str:
    return problem.code.replace("-", "_")


def stripe(problem: Problem, status: int, _request: object) -> dict[str, Any]:
    code = "idempotency_key_in_use" if problem.code == "in-progress" else _word(problem)
    of_key = problem.code in ("in-progress", "request-mismatch")
    kind = "idempotency_error" if of_key else _by_kind(status, "invalid_request_error", "api_error")
    error = {"type": kind, "code": code, "message": detail(problem)}
    return {"error": {**error, **({"doc_url": url} if (url := docs_url(problem)) else {})}}


def adyen(problem: Problem, status: int, _request: object) -> dict[str, Any]:
    code = "704" if problem.code == "in-progress" else _word(problem)
    kind = _by_kind(status, "validation", "internal")
    return {"status": status, "errorCode": code, "message": detail(problem), "errorType": kind}


def paypal(problem: Problem, status: int, _request: object) -> dict[str, Any]:
    code = (
        "PREVIOUS_REQUEST_IN_PROGRESS" if problem.code == "in-progress" else _word(problem).upper()
    )
    name = _PAYPAL.get(status, _by_kind(status, "INVALID_REQUEST"))
    details = [{"issue": code, "description": detail(problem)}]
    return {
        "name": name,
        "message": problem.title,
        "debug_id": reference(problem),
        "details": details,
    }


_PAYPAL = {
    403: "NOT_AUTHORIZED",
    404: "RESOURCE_NOT_FOUND",
    409: "RESOURCE_CONFLICT",
    422: "UNPROCESSABLE_ENTITY",
    429: "RATE_LIMIT_REACHED",
    503: "SERVICE_UNAVAILABLE",
}


def reference(problem: Problem) -> str:
    """Return what a person tells support, where an API's clients expect such an id: it names the
    operation, if there is one.
    """
    return str(problem.extensions.get("operation_ref", "none"))


def _by_kind(status: int, otherwise: str, internal: str = "INTERNAL_SERVER_ERROR") -> str:
    return internal if status >= 500 else otherwise


def square(problem: Problem, status: int, _request: object) -> dict[str, Any]:
    code = _SQUARE.get(problem.code, _word(problem).upper())
    category = (
        "RATE_LIMIT_ERROR"
        if status == 429
        else _by_kind(status, "INVALID_REQUEST_ERROR", "API_ERROR")
    )
    return {"errors": [{"category": category, "code": code, "detail": detail(problem)}]}


_SQUARE = {
    "key-missing": "MISSING_REQUIRED_PARAMETER",
    "key-malformed": "INVALID_VALUE",
    "in-progress": "CONFLICT",
    "request-mismatch": "IDEMPOTENCY_KEY_REUSED",
    "store-unavailable": "SERVICE_UNAVAILABLE",
    "too-many-keys": "RATE_LIMITED",
}


def odata(problem: Problem, _status: int, _request: object) -> dict[str, Any]:
    return {"error": {"code": problem.code.title().replace("-", ""), "message": detail(problem)}}


def google(problem: Problem, status: int, _request: object) -> dict[str, Any]:
    known = _GOOGLE.get(status) or _by_kind(status, "FAILED_PRECONDITION", "INTERNAL")
    return {"error": {"code": status, "message": detail(problem), "status": known}}


#: google.rpc.Code, by its HTTP mapping.
_GOOGLE = {
    400: "INVALID_ARGUMENT",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
}


def iceberg(problem: Problem, status: int, _request: object) -> dict[str, Any]:
    kind = f"{problem.code.title()}-Exception".replace("-", "")
    return {"error": {"message": detail(problem), "type": kind, "code": status}}
