"""One request to a DRF view, and the policy of that view."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, cast

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ..core.policy import SAFE_METHODS, Policy
from ..errors import ConfigurationError, Problem
from ..http.admission import is_guarded
from ..http.atomic_requests import OpenedTransactions
from ..http.exchange import Exchange
from ..http.facts import ANY_POLICY, facts_of
from ..http.problems import headers, problem_response
from ..http.responses import render
from ..http.status import note_problem
from ..http.unguarded import note_unreached
from . import problems
from .problems import IdempotencyException


@dataclass(frozen=True, slots=True)
class ViewTerms:
    """Where the policy of a view comes from."""

    #: The policy, if it does not depend on the request.
    fixed: Policy | None
    #: Is the view asked for it when its handler is called? Its `action`, `request` and `kwargs` are set then.
    asks: bool = False
    #: Is a key without a principal refused? The middleware lets such a request through.
    strict: bool = True

    def policy_of(self, view: Any) -> Policy:
        """Return the policy of a view that is about to call its handler."""
        return checked_policy(view, view.get_idempotency_policy() if self.asks or self.fixed is None else self.fixed)

    def may_have_key(self, request: HttpRequest) -> bool:
        """May a request have a key? Asked before the view exists."""
        if request.method in SAFE_METHODS:
            return False
        return self.fixed is None or facts_of(request).may_have_key(self.fixed)

    def may_read_body(self, request: HttpRequest) -> bool:
        """Is a request's body compared, or its key selected from it, as far as is known before the view decides?"""
        if request.method in SAFE_METHODS:
            return False
        facts = facts_of(request)
        return facts.carries_key() if self.fixed is None else facts.may_have_key(self.fixed)

    def carries_key(self, request: HttpRequest) -> bool:
        """Has a request sent a key, as far as is known before the view decides?"""
        return facts_of(request).carries_key(ANY_POLICY if self.fixed is None else self.fixed)


def checked_policy(view: Any, policy: Any) -> Policy:
    """Return a view's policy. Raises `ConfigurationError` for what is not one."""
    if isinstance(policy, Policy):
        return policy
    raise ConfigurationError(
        f"The idempotency policy of {type(view).__name__} is a value of type {type(policy).__name__}. "
        "Type idempotency = Policy(required=True, …) in the class."
    )


class ViewEntry:
    """One request on its way through a view."""

    def __init__(self, non_atomic: AbstractSet[str]) -> None:
        #: The databases without a transaction of ours, and the transactions of the others.
        self.non_atomic = non_atomic
        self.opened = OpenedTransactions()
        self.exchange: Exchange | None = None
        self.view: Any = None
        #: How many transactions were open on each database before the view's dispatch.
        self.depths: dict[str, int] = {}
        #: Has the exchange ended already, inside a transaction around that dispatch?
        self.ended = False

    def respond_to(self, problem: Problem) -> HttpResponseBase:
        """Return the response to a problem: from the project's exception handler, or a problem document."""
        view = self.view
        if not problems.has_own_handler(view):
            return problem_response(problem, view.request._request)
        note_problem(view.request._request, problem)
        response = view.handle_exception(IdempotencyException(problem, view.request._request))
        response = view.finalize_response(view.request, response, *view.args, **view.kwargs)
        render(headed(response, problem, view.request._request))
        return cast("HttpResponseBase", response)


def finished(view: Any, response: Any) -> HttpResponseBase:
    """Return a response as the view's own `dispatch()` would finish it: one of REST framework gets its renderer."""
    return cast("HttpResponseBase", view.finalize_response(view.request, response, *view.args, **view.kwargs))


def judge(request: HttpRequest, response: HttpResponseBase, terms: ViewTerms, *, reached: bool) -> None:
    """Note the status of a keyed request whose handler was never called."""
    if not reached and terms.carries_key(request) and not is_guarded(request):
        note_unreached(request, response)


def headed(response: HttpResponseBase, problem: Problem, request: HttpRequest) -> HttpResponseBase:
    for name, value in headers(problem, request).items():
        response.headers.setdefault(name, value)
    return response
