"""Counts a request once, by what became of it; does nothing without a meter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.conf.urls.i18n import is_language_prefix_patterns_used
from django.http import HttpRequest
from django.utils.translation import get_language_from_path

from .. import conf
from ..core.policy import Policy
from ..engine.operation import Operation
from ..errors import Problem
from ..instrumentation.counting import facts_of
from ..instrumentation.meters import Source, meters
from .references import operation_of

#: On a request: what is noted of it.
_COUNTING = "_idempotency_counting"
#: On a request that is looked at: what is called with its entry point and policy. See `debug_toolbar`.
WATCHED = "_idempotency_watched"


@dataclass(slots=True)
class _Counting:
    source: Source
    counted: bool = False


def in_any_language(request: HttpRequest, path: str) -> str:
    """Return a path, or a route, without the language that i18n_patterns() has put in front of it."""
    if not is_language_prefix_patterns_used(getattr(request, "urlconf", None) or settings.ROOT_URLCONF)[0]:
        return path
    root = "/" if path.startswith("/") else ""
    language, slash, rest = path.removeprefix("/").partition("/")
    return root + rest if slash and get_language_from_path(f"/{language}/") else path


def begin(request: HttpRequest, policy: Policy, entry_point: str) -> None:
    """Note which entry point guards a request. A request that is sent through it again counts again."""
    if (watch := getattr(request, WATCHED, None)) is not None:
        watch(entry_point, policy)
    if not meters.active:
        return
    match = request.resolver_match
    route = "" if match is None else in_any_language(request, match.route or "")
    source = Source(entry_point=entry_point, route=route, store=conf.field(policy, "store"))
    setattr(request, _COUNTING, _Counting(source))


def source_of(request: HttpRequest) -> Source | None:
    """Return what the figures of a request are labelled with, once an entry point has noted it."""
    counting: _Counting | None = getattr(request, _COUNTING, None) if meters.active else None
    return None if counting is None else counting.source


def count(request: HttpRequest, outcome: str, operation: Operation | None = None) -> None:
    """Count a request, unless it is counted already: what follows is how its work ended."""
    counting: _Counting | None = getattr(request, _COUNTING, None) if meters.active else None
    if counting is None or counting.counted:
        return
    counting.counted = True
    meters.request(counting.source, outcome, None if operation is None else facts_of(operation))
    if operation is not None and operation.waited:
        meters.waited(counting.source, operation.waited)


def count_problem(request: Any, problem: Problem) -> None:
    """Count a request that is refused."""
    count(request, problem.outcome, operation_of(request))
