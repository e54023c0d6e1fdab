"""The URLconf callback of a guarded DRF view. It opens the transactions of ATOMIC_REQUESTS in place of Django."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ..http.atomic_requests import ALL_ALIASES, AllAliases, non_atomic_aliases
from ..http.introspection import NON_ATOMIC, exclude_aliases, excluded_aliases
from .entry import ViewTerms
from .guarding import enter


def guarded_view(view: Callable[..., Any], terms: ViewTerms) -> Any:
    """Return the callback of a view that guards itself. Django itself refuses ATOMIC_REQUESTS for an async one."""
    return view if iscoroutinefunction(view) else GuardedView(view, terms)


class GuardedView:
    """A view, as `as_view()` returns it, with the attributes that the project has set on it.

    That it opens the transactions itself is kept in a slot, so no decorator copies it: around a decorator Django opens
    them, as without us, and nothing is left to open here.
    """

    __slots__ = ("__dict__", "__weakref__", NON_ATOMIC, "_terms", "_view")

    def __init__(self, view: Callable[..., HttpResponseBase], terms: ViewTerms) -> None:
        functools.update_wrapper(self, view)
        vars(self).pop("__wrapped__")  # nothing wraps it
        self._view = view
        self._terms = terms
        exclude_aliases(self, AllAliases(non_atomic_aliases(view)))

    def __call__(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Run the view."""
        # What Django has called may be a proxy of this, such as a tracer's. By our set it has left the transactions to us.
        called = getattr(getattr(request, "resolver_match", None), "func", None)
        left_to_us = excluded_aliases(called) is excluded_aliases(self)
        non_atomic = non_atomic_aliases(self) if left_to_us else ALL_ALIASES
        return enter(
            request, self._terms, functools.partial(self._view, request, *args, **kwargs), non_atomic=non_atomic
        )
