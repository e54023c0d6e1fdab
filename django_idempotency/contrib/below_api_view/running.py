"""The decorator below `@api_view`: inside a DRF view, where the response is not finished yet."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ...core.policy import SAFE_METHODS, Policy
from ...errors import Problem
from ...http.atomic_requests import ALL_ALIASES
from ...http.exchange import call_on
from ...http.plan import plan_of
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
    plan = plan_of(policy)
    keyed = request.method not in SAFE_METHODS and plan.may_have_key(request._request.META)
    if (
        keyed
        and not plan.observes
        and any(s["ATOMIC_REQUESTS"] for s in connections.settings.values())
    ):
        raise ImproperlyConfigured(
            "@idempotent() below @api_view is inside the transaction of ATOMIC_REQUESTS. "
            "Swap the two lines."
        )

    def complete() -> HttpResponseBase:
        try:
            response = function()
        except Exception as error:
            call = call_on(request._request)
            if call is not None and call.course.left_by(error) is not None:
                raise  # run() responds
            response = view.handle_exception(error)
        done: HttpResponseBase = view.finalize_response(
            request, response, *view.args, **view.kwargs
        )
        return done

    def respond(problem: Problem, http: HttpRequest) -> Any:
        return respond_to(view, IdempotencyException(problem, http), http)

    http, finish = request._request, partial(finished, view)
    return run(
        http,
        policy,
        complete,
        source=request,
        non_atomic=ALL_ALIASES,
        finish=finish,
        respond=respond,
    )
