"""Exceptions that leave a view: Django responds to some of them below 500, and those are not failures."""

from __future__ import annotations

from typing import NoReturn

from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
from django.core.handlers.exception import get_exception_response
from django.http import Http404, HttpRequest
from django.http.multipartparser import MultiPartParserError
from django.http.response import HttpResponseBase
from django.template.response import SimpleTemplateResponse
from django.urls import get_resolver, get_urlconf

from .responses import render

#: The exceptions that Django handles itself, and how (`django.core.handlers.exception.response_for_exception`).
STATUSES: dict[type[Exception], int] = {
    Http404: 404,
    PermissionDenied: 403,
    MultiPartParserError: 400,
    BadRequest: 400,
    SuspiciousOperation: 400,
}


def status_of(error: BaseException) -> int | None:
    """Return the status of Django's response to an exception, or `None` for a server error."""
    return next((status for raised, status in STATUSES.items() if isinstance(error, raised)), None)


def response_to(request: HttpRequest, error: Exception, status: int) -> HttpResponseBase:
    """Return the response that Django makes of one of them, by the project's own handler if it has one."""
    response: HttpResponseBase = get_exception_response(request, get_resolver(get_urlconf()), status, error)
    render(response)
    return response


class Raising(SimpleTemplateResponse):
    """Raises when Django renders it: then Django calls `process_exception`, as it does not after a `process_view`."""

    def __init__(self, error: Exception) -> None:
        super().__init__("", {})  # the process_template_response of a middleware may add to its context
        self.error: Exception | None = error

    def render(self) -> NoReturn:
        error, self.error = self.error, None
        assert error is not None, "Django renders it once"
        try:
            raise error
        finally:
            del error  # its traceback has this frame
