"""Errors as problem documents (RFC 9457)."""

from __future__ import annotations

import json
from typing import Any

from django.http import HttpRequest, HttpResponse

from .. import conf
from ..errors import Problem
from . import status
from .responses import StoredResponse


def docs_url(problem: Problem) -> str:
    """Return the address of the page about a problem: its `type`."""
    return f"{conf.get('PROBLEM_DOCS')}#{problem.code}"


def document(problem: Problem) -> dict[str, Any]:
    """Return the members of a problem document. No key, no stored body, no stack."""
    return {
        "type": docs_url(problem),
        "title": problem.title,
        "status": problem.status,
        "detail": " ".join(str(problem).split()),
        "code": problem.code,
        **problem.extensions,
    }


def headers(problem: Problem) -> dict[str, str]:
    """Return the headers of a problem's answer; the IETF draft (section 2.7) asks for the link."""
    link = f'<{docs_url(problem)}>; rel="describedby"'
    return {**problem.headers, **status.headers_of(problem), "Link": link, "Cache-Control": "no-store"}


def problem_response(problem: Problem, request: HttpRequest) -> HttpResponse:
    """Answer a request with a problem document."""
    status.note_problem(request, problem)
    return StoredResponse(
        json.dumps(document(problem)),
        status=problem.status,
        content_type="application/problem+json",
        headers=headers(problem),
    )
