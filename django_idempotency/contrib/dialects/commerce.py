"""Dialects of agentic commerce, where a key is compulsory.

A dialect does not say everything: the page of keys has the policy that each wants beside it.
"""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar

from django.http import HttpRequest, HttpResponse

from ...api import Dialect, is_deep
from ...api.requests import is_in_memory
from ...errors import KeyAhead, KeyExpired, Problem, RequestMismatch


class Acp(Dialect):
    """Speaks as the Agentic Commerce Protocol (OpenAI, Stripe), RFC "Agentic Checkout", section 6.

    Its keys are those of an endpoint, and each response is the key's, but a 5xx. What asks for
    another identity or a later time is not yet the operation's. A request is the same if its body
    is: "headers are excluded".
    """

    spelling = "opaque"
    requires_key = True
    compares = "body"
    keys_per = "endpoint"
    remembers = frozenset(range(200, 500)) - {401, 403, 408, 425, 429}
    echoes = frozenset(range(100, 600))
    error_type = "application/json"

    #: Our code → ACP's.
    codes: ClassVar = {
        "key-missing": "idempotency_key_required",
        "request-mismatch": "idempotency_conflict",
        "in-progress": "idempotency_in_flight",
    }

    def error_body(self, problem: Problem, status: int, request: Any) -> dict[str, Any]:
        """Return an error as agents parse it: flat."""
        kind = "invalid_request" if status < 500 else "processing_error"
        if status == 503:
            kind = "service_unavailable"
        code = self.codes.get(problem.code, problem.code.replace("-", "_"))
        return {"type": kind, "code": code, "message": problem.detail}


#: How an agent names a version of UCP, in the header UCP-Agent.
_SPOKEN = re.compile(r'\bversion="(\d{4}-\d{2}-\d{2})"')


class Ucp(Dialect):
    """Speaks as the Universal Commerce Protocol (Google, Shopify), its REST binding.

    Both conflicts are 409. A key is one of an operation. The payload is the bytes of the body.
    """

    spelling = "opaque"
    requires_key = True
    compares = "body"
    keys_per = "endpoint"
    statuses: ClassVar = {RequestMismatch: 409}
    error_type = "application/json"

    #: The version that a refusal names where the request does not, which was let in with its own:
    #: the latest when this was written.
    version = "2026-04-08"

    def error_body(self, problem: Problem, status: int, request: Any) -> dict[str, Any]:
        """Return an error as agents parse it: each response names the version."""
        sent = "" if request is None else request.META.get("HTTP_UCP_AGENT", "")
        spoken = _SPOKEN.search(sent)
        said = {"version": spoken[1] if spoken else self.version, "status": "error"}
        return {"ucp": said, "code": problem.code.replace("-", "_"), "content": problem.detail}


class Adcp(Dialect):
    """Speaks as the Ad Context Protocol 3, "Idempotency", over HTTP with JSON.

    Only a success is kept, and replayed for a minute more than its `ttl`, for buyers whose clocks
    differ.
    """

    carrier = "body"
    field = "idempotency_key"
    pattern = r"[A-Za-z0-9_.:-]{16,255}"
    requires_key = True
    compares = "body"
    grace = 60
    statuses: ClassVar = {RequestMismatch: 409, KeyExpired: 409, KeyAhead: 409}
    remembers = frozenset(range(200, 300))
    marker_member = "replayed"
    error_type = "application/json"

    #: Our code → AdCP's.
    codes: ClassVar = {
        "request-mismatch": "IDEMPOTENCY_CONFLICT",
        "key-expired": "IDEMPOTENCY_EXPIRED",
        "in-progress": "IDEMPOTENCY_IN_FLIGHT",
        "key-missing": "INVALID_REQUEST",
        "key-malformed": "INVALID_REQUEST",
        "too-many-keys": "RATE_LIMITED",
        "store-unavailable": "SERVICE_UNAVAILABLE",
        "try-again": "SERVICE_UNAVAILABLE",
    }
    #: AdCP's own word for these is as wide as ours is narrow: the buyer looks first, or sends what
    #: it sent before.
    correctable = frozenset({"IDEMPOTENCY_CONFLICT", "IDEMPOTENCY_EXPIRED", "INVALID_REQUEST"})
    #: What a problem says of a retry → what a buyer does.
    recoveries: ClassVar = {"same-key": "transient", "new-key": "correctable"}

    def error_body(self, problem: Problem, status: int, request: Any) -> dict[str, Any]:
        """Return an error as buyers parse it, with the `context` of the request."""
        code = self.codes.get(problem.code, problem.code.replace("-", "_").upper())
        recovery = self.recoveries.get(problem.retry, "terminal")
        if code in self.correctable:
            recovery = "correctable"
        error: dict[str, Any] = {"code": code, "message": problem.detail, "recovery": recovery}
        again = problem.retry_in
        if again is not None:
            error["retry_after"] = min(max(again, 1), 3600)
        brief = error
        if code == "IDEMPOTENCY_CONFLICT":
            # To AdCP's own tests, all but two members of a conflict are a leak; `errors` is as in
            # the example of its specification.
            brief = {name: error[name] for name in ("code", "message")}
        return {"adcp_error": brief, "errors": [error], **_context(request)}


def _context(request: HttpRequest | None) -> dict[str, Any]:
    """Return what the buyer wants back, as it was sent.

    For a request that was refused unread, nothing is read.
    """
    try:
        body = json.loads(request.body) if request is not None and is_in_memory(request) else None
    except (ValueError, RecursionError):
        return {}
    if not isinstance(body, dict) or "context" not in body or is_deep(body):
        return {}
    return {"context": body["context"]}


def adcp_replay(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    """Return a replay with the `context` of its own request, as AdCP wants it: for
    `OnReplay` of a policy.
    """
    try:
        body = json.loads(response.content)
    except (ValueError, RecursionError):  # of a 204, or nested too deep to be read
        return response
    if isinstance(body, dict):
        body.pop("context", None)
        response.content = json.dumps(body | _context(request)).encode()
    return response


#: The members that AdCP's equivalence leaves out, for `json_body(exclude=ADCP_EXCLUDED)`.
ADCP_EXCLUDED = (
    "idempotency_key",
    "context",
    "governance_context",
    "push_notification_config.authentication.credentials",
)
