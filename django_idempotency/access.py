"""Access decorators and mixins of Django's, asked once more before a replay.

The middleware answers a replay before the view, and so before what stands around it. Whoever has lost the permission
since must not read the answer that was given with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from types import CodeType
from typing import Any

from asgiref.sync import async_to_sync, iscoroutinefunction
from django.contrib.auth.decorators import user_passes_test
from django.contrib.auth.mixins import PermissionRequiredMixin, UserPassesTestMixin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest

from .marks import view_class


def may_still_enter(request: HttpRequest, callback: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Would each `user_passes_test` (so `login_required`, `permission_required`, …) and access mixin let it pass?"""
    try:
        return all(_passes(test, request) for test in _tests(callback)) and _mixins_pass(
            request, callback, args, kwargs
        )
    except PermissionDenied:
        return False


def _passes(test: Any, request: HttpRequest) -> bool:
    user = getattr(request, "user", None)
    return bool(async_to_sync(test)(user) if iscoroutinefunction(test) else test(user))


def _tests(callback: Any) -> Iterator[Any]:
    """Yield the test of each layer that `user_passes_test` has put around a view."""
    while callback is not None:
        code = getattr(callback, "__code__", None)
        if code in _wrappers():
            yield callback.__closure__[code.co_freevars.index("test_func")].cell_contents
        callback = getattr(callback, "__wrapped__", None)


@lru_cache(maxsize=1)
def _wrappers() -> frozenset[CodeType]:
    """Return the code of what `user_passes_test` returns, for a sync view and for an async one."""

    def view(request: HttpRequest) -> None: ...

    async def async_view(request: HttpRequest) -> None: ...

    decorate = user_passes_test(bool)
    return frozenset(decorate(each).__code__ for each in (view, async_view))  # type: ignore[type-var]


def _mixins_pass(request: HttpRequest, callback: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    cls = view_class(callback)
    if cls is None or not issubclass(cls, (PermissionRequiredMixin, UserPassesTestMixin)):
        return True  # LoginRequiredMixin asks for a user, without whom there is no key
    view: Any = cls(**callback.view_initkwargs)
    view.setup(request, *args, **kwargs)
    permitted = not isinstance(view, PermissionRequiredMixin) or view.has_permission()
    return permitted and (not isinstance(view, UserPassesTestMixin) or bool(view.get_test_func()()))
