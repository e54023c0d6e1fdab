"""Counts a request once, by what became of it; does nothing without a meter."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.conf.urls.i18n import is_language_prefix_patterns_used
from django.http import HttpRequest
from django.utils.translation import get_language_from_path

from .. import conf
from ..core.policy import Policy
from ..engine.operation import Operation
from ..errors import Problem
from ..instrumentation.meters import Source, meters
from ..instrumentation.outcomes import count as count_from
from .exchange import exchange_of, noted_of


def in_any_language(request: HttpRequest, path: str) -> str:
    """Return a path, or a route, without the language that i18n_patterns() has put in front of
    it.
    """
    if not is_language_prefix_patterns_used(
        getattr(request, "urlconf", None) or settings.ROOT_URLCONF
    )[0]:
        return path
    root = "/" if path.startswith("/") else ""
    language, slash, rest = path.removeprefix("/").partition("/")
    return root + rest if slash and get_language_from_path(f"/{language}/") else path


def begin(request: HttpRequest, policy: Policy, entry_point: str) -> None:
    """Note which entry point guards a request.

    A request that is sent through it again counts again.
    """
    exchange = noted_of(request)
    if exchange is not None and exchange.arrived is not None:
        exchange.arrived(entry_point, policy)
    if not meters.active:
        return
    match = request.resolver_match
    route = "" if match is None else in_any_language(request, match.route or "")
    exchange = exchange_of(request)
    exchange.source = Source(
        entry_point=entry_point, route=route, store=conf.field(policy, "store")
    )
    exchange.counted = False


def count(request: HttpRequest, outcome: str, operation: Operation | None = None) -> None:
    """Count a request, unless it is counted already: what follows is how its work ended."""
    exchange = noted_of(request) if meters.active else None
    if exchange is None or exchange.source is None or exchange.counted:
        return
    exchange.counted = True
    count_from(exchange.source, outcome, operation)


def count_problem(request: Any, problem: Problem) -> None:
    """Count a request that is refused."""
    exchange = noted_of(request)
    count(request, problem.outcome, None if exchange is None else exchange.operation)
