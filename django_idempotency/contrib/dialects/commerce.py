"""Profiles of agentic commerce, where a key is compulsory, and of three APIs whose clients are
found in many projects.

A profile does not say everything: the page of keys has the policy that each of the first three
wants beside it.
"""

from __future__ import annotations

import json
import re
from typing import Any

from django.http import HttpRequest, HttpResponse

from ...core.hashing import is_deep
from ...core.profiles import ErrorBody, Profile
from ...errors import Problem
from ...http.bodies import is_in_memory
from ...http.problems import detail, docs_url
from .errors import reference


def _named(problem: Problem, names: dict[str, str]) -> str:
    return names.get(problem.code) or problem.code.replace("-", "_")


# --------------------------------------------------------------------------------- agentic commerce

_ACP = {
    "key-missing": "idempotency_key_required",
    "request-mismatch": "idempotency_conflict",
    "in-progress": "idempotency_in_flight",
}


def _acp(problem: Problem, status: int, _request: object) -> dict[str, Any]:
    kind = (
        "invalid_request"
        if status < 500
        else "service_unavailable"
        if status == 503
        else "processing_error"
    )
    return {"type": kind, "code": _named(problem, _ACP), "message": detail(problem)}


#: The version of UCP that a refusal names where the request does not: the latest when this was
#: written.
UCP_VERSION = "2026-04-08"
#: How an agent names one, in the header UCP-Agent.
_UCP_SPOKEN = re.compile(r'\bversion="(\d{4}-\d{2}-\d{2})"')


def ucp_errors(version: str) -> ErrorBody:
    """Return the `errors` of a profile of UCP in this version.

    A request that names another was let in with that.
    """

    def errors(problem: Problem, _status: int, request: HttpRequest | None) -> dict[str, Any]:
        sent = "" if request is None else request.META.get("HTTP_UCP_AGENT", "")
        spoken = _UCP_SPOKEN.search(sent)
        said = {"version": spoken[1] if spoken else version, "status": "error"}
        return {"ucp": said, "code": _named(problem, {}), "content": detail(problem)}

    return errors


_ADCP = {
    "request-mismatch": "IDEMPOTENCY_CONFLICT",
    "key-expired": "IDEMPOTENCY_EXPIRED",
    "in-progress": "IDEMPOTENCY_IN_FLIGHT",
    "key-missing": "INVALID_REQUEST",
    "key-malformed": "INVALID_REQUEST",
    "too-many-keys": "RATE_LIMITED",
    "store-unavailable": "SERVICE_UNAVAILABLE",
    "try-again": "SERVICE_UNAVAILABLE",
}


#: AdCP's own word for these is as wide as ours is narrow: the buyer looks first, or sends what it
#: sent before.
_CORRECTABLE = ("IDEMPOTENCY_CONFLICT", "IDEMPOTENCY_EXPIRED", "INVALID_REQUEST")
_RECOVERY = {"same-key": "transient", "new-key": "correctable"}


def _adcp(problem: Problem, _status: int, request: HttpRequest | None) -> dict[str, Any]:
    again = problem.retry_in
    code = _named(problem, _ADCP).upper()
    recovery = "correctable" if code in _CORRECTABLE else _RECOVERY.get(problem.retry, "terminal")
    error: dict[str, Any] = {"code": code, "message": detail(problem), "recovery": recovery}
    if again is not None:
        error["retry_after"] = min(max(again, 1), 3600)
    # To AdCP's own tests, all but two members of a conflict are a leak; `errors` is as in the
    # example of its specification.
    brief = (
        {name: error[name] for name in ("code", "message")}
        if code == "IDEMPOTENCY_CONFLICT"
        else error
    )
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
    """Return a replay with the `context` of its own request, as AdCP wants it: for a policy's
    `on_replay`.
    """
    try:
        body = json.loads(response.content)
    except (ValueError, RecursionError):  # of a 204, or nested too deep to be read
        return response
    if isinstance(body, dict):
        body.pop("context", None)
        response.content = json.dumps(body | _context(request)).encode()
    return response


#: Agentic Commerce Protocol (OpenAI, Stripe), RFC "Agentic Checkout", section 6. Its keys are those
#: of an endpoint, and each response is the key's, but a 5xx. What asks for another identity or a
#: later time is not yet the operation's. A request is the same if its body is: "headers are
#: excluded".
ACP = Profile(
    name="acp",
    spelling="opaque",
    compares="body",
    keys_per="endpoint",
    remembers=frozenset(range(200, 500)) - {401, 403, 408, 425, 429},
    echoes=frozenset(range(100, 600)),
    errors=_acp,
)

#: Universal Commerce Protocol (Google, Shopify), its REST binding. Both conflicts are 409. A key is
#: one of an operation. The payload is the bytes of the body. Each response names the version: for
#: another, `replace(UCP, errors=ucp_errors("…"))`.
UCP = Profile(
    name="ucp",
    spelling="opaque",
    compares="body",
    keys_per="endpoint",
    mismatch_status=409,
    errors=ucp_errors(UCP_VERSION),
)

#: Ad Context Protocol 3, "Idempotency", over HTTP with JSON. Only a success is kept, and replayed
#: for a minute more than its `ttl`, for buyers whose clocks differ.
ADCP = Profile(
    name="adcp",
    compares="body",
    grace=60,
    carrier="body",
    field="idempotency_key",
    pattern=r"[A-Za-z0-9_.:-]{16,255}",
    mismatch_status=409,
    late_status=409,
    remembers=frozenset(range(200, 300)),
    marker_member="replayed",
    errors=_adcp,
)

#: The members that AdCP's equivalence leaves out, for `json_body(exclude=ADCP_EXCLUDED)`.
ADCP_EXCLUDED = (
    *("idempotency_key", "context", "governance_context"),
    "push_notification_config.authentication.credentials",
)

# ---------------------------------------------------------------------------- three well-known APIs


def _mastodon(problem: Problem, _status: int, _request: object) -> dict[str, Any]:
    return {"error": detail(problem)}


def _gocardless(problem: Problem, status: int, _request: object) -> dict[str, Any]:
    kind = (
        "gocardless" if status >= 500 else "invalid_state" if status == 409 else "invalid_api_usage"
    )
    reason = {"reason": _named(problem, {}), "message": detail(problem)}
    page = (
        docs_url(problem)
        or "https://developer.gocardless.com/api-reference/#making-requests-idempotency-keys"
    )
    about = {"documentation_url": page, "request_id": reference(problem)}
    return {
        "error": {
            "code": status,
            "type": kind,
            "message": detail(problem),
            "errors": [reason],
            **about,
        }
    }


def _mollie(problem: Problem, status: int, _request: object) -> dict[str, Any]:
    link = {
        "href": docs_url(problem) or "https://www.rfc-editor.org/rfc/rfc9457",
        "type": "text/html",
    }
    return {
        "status": status,
        "title": problem.title,
        "detail": detail(problem),
        "_links": {"documentation": link},
    }


#: Mastodon, `POST /api/v1/statuses`.
MASTODON = Profile(name="mastodon", spelling="opaque", errors=_mastodon)

#: GoCardless. There a repeat is a 409 that names the resource; a replay spares its client the
#: second request.
GOCARDLESS = Profile(name="gocardless", spelling="opaque", max_length=128, errors=_gocardless)

#: Mollie, v2.
MOLLIE = Profile(name="mollie", spelling="opaque", errors=_mollie)

COMMERCE = (ACP, UCP, ADCP, MASTODON, GOCARDLESS, MOLLIE)
