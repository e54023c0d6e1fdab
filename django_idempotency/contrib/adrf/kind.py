"""Recognizes views of adrf. Imports neither adrf nor REST framework."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from django.http import HttpRequest

from ... import Policy
from ...api.requests import ViewKind


class Adrf(ViewKind):
    """Guarded behind their own checks, as other REST framework views; with async handlers under a
    lease.
    """

    packages = ("adrf",)

    def owns(self, view: Any) -> bool:
        """Does a class dispatch async handlers?"""
        return hasattr(view, "async_dispatch")

    def dispatch(self, view: Any, request: HttpRequest, terms: Any, run: Callable[[], Any]) -> Any:
        """Return a coroutine, as adrf's dispatch of async handlers does."""
        from .dispatching import adispatch  # not above: needs DRF, which such a view has loaded

        return adispatch(view, request, terms, run)

    def arun_inside(
        self, request: Any, policy: Policy, function: Callable[[], Awaitable[Any]]
    ) -> Awaitable[Any]:
        """Return a coroutine that runs the function under a lease."""
        from .dispatching import arun_inside  # not above: needs DRF, which such a view has loaded

        return arun_inside(request, policy, function)
