"""The decorator below `@api_view`: inside a DRF view, where the response is not finished yet."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ...core.policy import Policy
from ...errors import Problem
from ...http.exchange import call_on
from ...http.run import run
from ...rest_framework.guarding import finished
from ...rest_framework.problems import IdempotencyException
from ..rest import respond_to


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
