"""Dialects of payment APIs, beside Stripe's, which is the core's."""

from __future__ import annotations

from typing import Any, ClassVar

from ...api import Answer, Dialect
from ...errors import InProgress, Problem, RequestMismatch


class Adyen(Dialect):
    """Speaks as Adyen's API. Only what may succeed later is not kept, and says so."""

    spelling = "bare"
    max_length = 64
    statuses: ClassVar = {InProgress: 422}
    remembers = frozenset(range(200, 500)) - {401, 403, 408, 409, 425, 429}
    echoes = frozenset({200, 201, 202, 422})
    error_type = "application/json"

    def headers(self, answer: Answer) -> dict[str, str]:
        """Return the headers, with the one of an error that may be gone later."""
        found = super().headers(answer)
        if "Retry-After" in found:
            found["Transient-Error"] = "true"
        return found

    def error_body(self, problem: Problem, status: int, request: Any) -> dict[str, Any]:
        """Return an error as Adyen's clients parse it."""
        code = "704" if problem.code == "in-progress" else problem.code.replace("-", "_")
        kind = "validation" if status < 500 else "internal"
        return {"status": status, "errorCode": code, "message": problem.detail, "errorType": kind}


class PayPal(Dialect):
    """Speaks as PayPal's Orders, v2. A repeat of what was created answers 200."""

    field = "PayPal-Request-Id"
    spelling = "bare"
    max_length = 108
    replays_as: ClassVar = {201: 200}
    error_type = "application/json"

    #: Status → the name of an error.
    names: ClassVar = {
        403: "NOT_AUTHORIZED",
        404: "RESOURCE_NOT_FOUND",
        409: "RESOURCE_CONFLICT",
        422: "UNPROCESSABLE_ENTITY",
        429: "RATE_LIMIT_REACHED",
        503: "SERVICE_UNAVAILABLE",
    }

    def error_body(self, problem: Problem, status: int, request: Any) -> dict[str, Any]:
        """Return an error as PayPal's clients parse it. A person tells support its `debug_id`,
        which names the operation, if there is one.
        """
        issue = problem.code.replace("-", "_").upper()
        if problem.code == "in-progress":
            issue = "PREVIOUS_REQUEST_IN_PROGRESS"
        other = "INVALID_REQUEST" if status < 500 else "INTERNAL_SERVER_ERROR"
        return {
            "name": self.names.get(status, other),
            "message": problem.title,
            "debug_id": str(problem.extensions.get("operation_ref", "none")),
            "details": [{"issue": issue, "description": problem.detail}],
        }


class Square(Dialect):
    """Speaks as Square's Payments."""

    carrier = "body"
    field = "idempotency_key"
    max_length = 45
    statuses: ClassVar = {RequestMismatch: 400}
    error_type = "application/json"

    #: Our code → Square's.
    codes: ClassVar = {
        "key-missing": "MISSING_REQUIRED_PARAMETER",
        "key-malformed": "INVALID_VALUE",
        "in-progress": "CONFLICT",
        "request-mismatch": "IDEMPOTENCY_KEY_REUSED",
        "store-unavailable": "SERVICE_UNAVAILABLE",
        "too-many-keys": "RATE_LIMITED",
    }

    def error_body(self, problem: Problem, status: int, request: Any) -> dict[str, Any]:
        """Return an error as Square's clients parse it."""
        code = self.codes.get(problem.code, problem.code.replace("-", "_").upper())
        category = "INVALID_REQUEST_ERROR" if status < 500 else "API_ERROR"
        if status == 429:
            category = "RATE_LIMIT_ERROR"
        return {"errors": [{"category": category, "code": code, "detail": problem.detail}]}
