"""The bodies of our errors. No key, no stored body, no stack."""

from __future__ import annotations

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


def problem_document(problem: Problem, status: int, _request: object = None) -> dict[str, Any]:
    """Make a problem document (RFC 9457)."""
    return {
        "type": docs_url(problem) or NAMESPACE + problem.code,
        "title": problem.title,
        "status": status,
        "detail": detail(problem),
        "code": problem.code,
        "retry": problem.retry,
        **problem.extensions,
    }


#: The names in a profile's `errors` under which a program gets a problem document; what is a page otherwise, too: see contrib.forms.pages.
DOCUMENTS = ("problem", "page")
