"""A function that is a view, under guard: Django's, or DRF's and other packages' behind their own
checks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.core.exceptions import ImproperlyConfigured
from django.http import Http404, HttpRequest

from .. import conf
from ..core.policy import Policy, async_contradiction
from ..core.records import Guarantee
from ..errors import ConfigurationError
from ..http.atomic_requests import leave_atomic_requests
from ..http.kinds import kind_of, offer
from ..http.markers import mark
from ..http.responses import answer_to
from ..http.run import arun, run
from ..http.views import call_around
from .refusing import name_of


def _is_async(view: Any) -> bool:
    """Does a view return a coroutine? For an instance, its `__call__` decides."""
    return iscoroutinefunction(view) or iscoroutinefunction(getattr(type(view), "__call__", None))  # noqa: B004


def leases(policy: Policy) -> bool:
    """Has a policy the guarantee "lease"?"""
    return bool(conf.field(policy, "guarantee") == Guarantee.LEASE)


def guarded_view(view: Callable[..., Any], policy: Policy) -> Callable[..., Any]:
    """Guard a view."""
    guarded = (_guarded_async if _is_async(view) else _guarded)(view, policy)
    mark(guarded, policy=policy)
    offer(guarded, view, policy)
    return leave_atomic_requests(guarded) if leases(policy) else guarded


def _guarded(view: Callable[..., Any], policy: Policy) -> Callable[..., Any]:
    @functools.wraps(view)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        source = _request_in(args, kwargs)
        call = functools.partial(view, *args, **kwargs)
        if hasattr(source, "_request"):
            from ..rest_framework.below_api_view import run_inside  # only there REST framework is

            return run_inside(source, policy, call)
        operation = call_around(source, policy)
        if operation is not None:
            return operation.enter(call)
        try:
            return run(source, policy, call, source=source)
        except Http404 as error:
            return answer_to(source, error, guarded)

    return guarded


def _guarded_async(view: Callable[..., Any], policy: Policy) -> Callable[..., Any]:
    if not leases(policy):
        raise ImproperlyConfigured(
            async_contradiction(
                name_of(view), fix='Type @idempotent(guarantee="lease"), or make it a sync view.'
            )
        )

    @functools.wraps(view)
    async def guarded(*args: Any, **kwargs: Any) -> Any:
        source = _request_in(args, kwargs)
        call = functools.partial(view, *args, **kwargs)
        if hasattr(source, "_request"):
            kind = kind_of(type(source.parser_context["view"]))
            return await kind.arun_inside(source, policy, call)
        operation = call_around(source, policy)
        if operation is not None:
            return await operation.aenter(call)
        try:
            return await arun(source, policy, call)
        except Http404 as error:
            return answer_to(source, error, guarded)

    return markcoroutinefunction(guarded)


def _request_in(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the request among the arguments of a function (first) or a method (second); Django's
    or DRF's.
    """
    for value in (*args[:2], kwargs.get("request")):
        if isinstance(value, HttpRequest) or hasattr(value, "_request"):
            return value
    raise ConfigurationError("@idempotent() guards views: the first argument must be a request.")
