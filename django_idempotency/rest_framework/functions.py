"""The decorator below `@api_view`: inside a DRF view, where the response is not finished yet."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from .. import conf
from ..core.policy import OBSERVE, SAFE_METHODS, Policy
from ..errors import Problem
from ..http.atomic_requests import ALL_ALIASES
from ..http.exchange import exchange_of
from ..http.facts import facts_of
from ..http.running import run_guarded
from . import problems
from .entry import finished
from .problems import IdempotencyException


def run_inside(request: Any, policy: Policy, function: Callable[[], HttpResponseBase]) -> HttpResponseBase:
    """Run a DRF function under guard, exceptions handled and the response finished as its view would."""
    view = request.parser_context["view"]
    policy_guards = conf.field(policy, "mode") != OBSERVE
    keyed = request.method not in SAFE_METHODS and facts_of(request._request).may_have_key(policy)
    if keyed and policy_guards and any(s["ATOMIC_REQUESTS"] for s in connections.settings.values()):
        raise ImproperlyConfigured(
            "@idempotent() below @api_view is inside the transaction of ATOMIC_REQUESTS. Swap the two lines."
        )

    def complete() -> HttpResponseBase:
        try:
            response = function()
        except Exception as error:
            exchange = exchange_of(request._request)
            if exchange is not None and exchange.course.left_by(error) is not None:
                raise  # run_guarded() responds
            response = view.handle_exception(error)
        done: HttpResponseBase = view.finalize_response(request, response, *view.args, **view.kwargs)
        return done

    def respond_to_problem(problem: Problem, http: HttpRequest) -> Any:
        return problems.respond_to(view, IdempotencyException(problem, http), http)

    return run_guarded(
        request._request,
        policy,
        complete,
        source=request,
        non_atomic=ALL_ALIASES,
        finish=partial(finished, view),
        respond_to_problem=respond_to_problem,
    )
