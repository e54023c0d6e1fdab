"""The dialect of HTML forms: errors are a page, for a person who has sent one. Its template is
`django_idempotency/problem.html`, which projects override.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from django.core.exceptions import DisallowedHost
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.http import url_has_allowed_host_and_scheme

from ...api import Dialect
from ...errors import Problem

logger = logging.getLogger("django_idempotency")

TEMPLATE = "django_idempotency/problem.html"
#: As what browsers send a form by POST.
_SENT_AS = ("application/x-www-form-urlencoded", "multipart/form-data")
_TYPES = ["text/html", "application/problem+json", "application/json"]


class Form(Dialect):
    """Speaks to people with HTML forms. A form that is refused is corrected and sent again, under
    the key that it has.
    """

    carrier = "body"
    field = "idempotency_key"
    remembers = frozenset(range(200, 400))
    pages = True

    def error_body(self, problem: Problem, status: int, request: Any) -> Mapping[str, Any] | str:
        """Return a page for a person, and a problem document for a program."""
        page = None if request is None else page_of(problem, request, status)
        return super().error_body(problem, status, request) if page is None else page


def page_of(problem: Problem, request: HttpRequest, status: int) -> str | None:
    """Return the page that answers a form; `None` for a request that no form has sent, or that
    wants no page.

    `nothing_done` in its context: may the page lead to a form with a new key? A template that fails
    is logged, and the client gets the problem document: an error must not become another.
    """
    if (request.content_type or "").lower() not in _SENT_AS or request.get_preferred_type(
        _TYPES
    ) != "text/html":
        return None
    context = {
        "code": problem.code,
        "title": problem.title,
        "detail": " ".join(str(problem).split()),
        "status": status,
        "retry_in": problem.retry_in,
        "form_url": _form_url(request),
        "nothing_done": problem.nothing_done,
    }
    try:
        return render_to_string(TEMPLATE, context, request)
    except Exception:
        logger.exception("The template %s cannot be rendered.", TEMPLATE)
        return None


def _form_url(request: HttpRequest) -> str | None:
    """Return the address of the page that the form was on; `None` if the browser does not say, or
    it is elsewhere.
    """
    referer = request.META.get("HTTP_REFERER", "")
    try:
        ours = url_has_allowed_host_and_scheme(referer, {request.get_host()})
    except DisallowedHost:
        return None
    return referer if ours else None
