"""`@idempotent()` below `@api_view`: inside a DRF view, where the response is not finished yet."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ..core.policy import Policy
from ..errors import Problem
from ..http.exchange import call_on
from ..http.problems import note_problem, problem_response
from ..http.run import run
from .guarding import finished, headed
from .problems import IdempotencyException, has_own_handler


def run_inside(
    request: Any, policy: Policy, function: Callable[[], HttpResponseBase]
) -> HttpResponseBase:
    """Run a DRF function under guard, exceptions handled and the response finished as its view
    would.
    """
    view = request.parser_context["view"]

    def complete() -> HttpResponseBase:
        try:
            response = function()
        except Exception as error:
            call = call_on(request._request)
            if call is not None and call.course.left_by(error) is not None:
                raise  # the call responds
            response = view.handle_exception(error)
        return finished(view, response)

    def respond(problem: Problem, http: HttpRequest) -> Any:
        return respond_to(view, IdempotencyException(problem, http), http)

    return run(
        request._request,
        policy,
        complete,
        source=request,
        finish=partial(finished, view),
        respond=respond,
    )


def respond_to(view: Any, exception: IdempotencyException, request: HttpRequest) -> Any:
    """Return the response to a problem: from the project's exception handler, or a problem
    document.
    """
    if not has_own_handler(view):
        return problem_response(exception.problem, request)
    note_problem(request, exception.problem)
    response = view.get_exception_handler()(exception, view.get_exception_handler_context())
    if response is None:
        raise exception
    response.exception = True
    return headed(response, exception.problem, request)
