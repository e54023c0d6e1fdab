"""A problem as a response of an API: from its own exception handler, if it has one, or a problem document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ...errors import IdempotencyError, Problem
from ...http import problems
from ...http.status import note_problem

if TYPE_CHECKING:
    from ninja import NinjaAPI


def handled_exceptions(api: Any) -> Any:
    """Return the exception classes that an API has handlers for.

    `api.on_exception()` finds one for every exception, ninja's own, so it cannot say whether the project has one for
    ours.
    """
    return getattr(api, "_exception_handlers", {})


def problem_response(problem: Problem, request: HttpRequest, api: NinjaAPI) -> HttpResponseBase:
    """Return the response to a problem: from the API's own handler, if there is one, or a problem document."""
    handled = _handled(problem, request, api)
    return problems.problem_response(problem, request) if handled is None else handled


async def aproblem_response(problem: Problem, request: HttpRequest, api: NinjaAPI) -> HttpResponseBase:
    """See problem_response()."""
    handled = _handled(problem, request, api)
    return await problems.aproblem_response(problem, request) if handled is None else handled


def _handled(problem: Problem, request: HttpRequest, api: NinjaAPI) -> HttpResponseBase | None:
    """Return the response of the API's own handler, if it has one for a problem."""
    handlers = handled_exceptions(api)
    if not any(issubclass(cls, IdempotencyError) and cls in handlers for cls in type(problem).__mro__):
        return None
    note_problem(request, problem)
    response: HttpResponseBase = api.on_exception(request, problem)
    for name, value in problems.headers(problem, request).items():
        response.setdefault(name, value)
    return response
