"""Errors as problem documents (RFC 9457)."""

from __future__ import annotations

import json
from typing import Any

from django.http import HttpRequest, HttpResponse

from .. import conf
from ..core.rules import Busy, Mismatch, Unreadable
from ..errors import InProgress, Problem, RecordUnreadable, RequestMismatch
from . import status
from .responses import StoredResponse

#: Begins the `type` of a problem while PROBLEM_DOCS names no page. A name, not an address: it resolves to nothing.
NAMESPACE = "urn:django-idempotency:problem:"


def refusal_of(verdict: Busy | Mismatch | Unreadable) -> Problem:
    """Return the problem that answers a request which neither runs nor gets a replay."""
    match verdict:
        case Busy(retry_after=seconds):
            return InProgress(headers={"Retry-After": str(seconds)})
        case Mismatch():
            return RequestMismatch()
        case Unreadable():
            return RecordUnreadable()


def docs_url(problem: Problem) -> str | None:
    """Return the address of the section about a problem; `None`: the project has not set PROBLEM_DOCS."""
    page = conf.get("PROBLEM_DOCS")
    return None if page is None else f"{page}#{problem.code}"


def document(problem: Problem) -> dict[str, Any]:
    """Return the members of a problem document. No key, no stored body, no stack."""
    return {
        "type": docs_url(problem) or NAMESPACE + problem.code,
        "title": problem.title,
        "status": problem.status,
        "detail": " ".join(str(problem).split()),
        "code": problem.code,
        **problem.extensions,
    }


def headers(problem: Problem) -> dict[str, str]:
    """Return the headers of a problem's response, with the link that the IETF draft (2.7) asks for, if there is one."""
    url = docs_url(problem)
    link = {"Link": f'<{url}>; rel="describedby"'} if url else {}
    return {**problem.headers, **status.headers_of(problem), **link, "Cache-Control": "no-store"}


def problem_response(problem: Problem, request: HttpRequest) -> HttpResponse:
    """Return a problem document as the response to a request."""
    status.note_problem(request, problem)
    return StoredResponse(
        json.dumps(document(problem)),
        status=problem.status,
        content_type="application/problem+json",
        headers=headers(problem),
    )
