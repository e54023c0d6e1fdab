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
from django.apps import apps
from django.contrib.auth.decorators import user_passes_test
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from django.utils.decorators import method_decorator

from .marks import view_class


def may_still_enter(request: HttpRequest, callback: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Would each `user_passes_test` (so `login_required`, `permission_required`, …) and access mixin let it pass?"""
    try:
        return all(_passes(test, request) for test in _tests(callback, request.method or "")) and _mixins_pass(
            request, callback, args, kwargs
        )
    except PermissionDenied:
        return False


def _passes(test: Any, request: HttpRequest) -> bool:
    user = getattr(request, "user", None)
    return bool(async_to_sync(test)(user) if iscoroutinefunction(test) else test(user))


def _tests(callback: Any, method: str) -> Iterator[Any]:
    """Yield each test that `user_passes_test` has put around a view, its `dispatch` or its handler."""
    yield from _tests_around(callback)
    if (cls := view_class(callback)) is not None:
        for base in cls.__mro__:  # each dispatch calls that of its super()
            yield from _tests_around(vars(base).get("dispatch"))
        yield from _tests_around(getattr(cls, method.lower(), None))


def _tests_around(layer: Any) -> Iterator[Any]:
    while layer is not None:
        code = getattr(layer, "__code__", None)
        if code in _wrappers():
            yield _cell(layer, "test_func")
        elif code is _method_wrapper():
            for decorate in _cell(layer, "decorators"):
                yield from _tests_around(decorate(_view))  # as method_decorator does at each call
        layer = getattr(layer, "__wrapped__", None)


def _cell(function: Any, name: str) -> Any:
    return function.__closure__[function.__code__.co_freevars.index(name)].cell_contents


def _view(request: HttpRequest) -> None: ...


async def _async_view(request: HttpRequest) -> None: ...


@lru_cache(maxsize=1)
def _wrappers() -> frozenset[CodeType]:
    """Return the code of what `user_passes_test` returns, for a sync view and for an async one."""
    decorate = user_passes_test(bool)
    return frozenset(decorate(each).__code__ for each in (_view, _async_view))  # type: ignore[type-var]


@lru_cache(maxsize=1)
def _method_wrapper() -> CodeType:
    """Return the code of what `method_decorator` returns."""
    return method_decorator(user_passes_test(bool))(_view).__code__


def _mixins_pass(request: HttpRequest, callback: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    cls = view_class(callback)
    if cls is None or not apps.is_installed("django.contrib.auth"):
        return True
    from django.contrib.auth.mixins import PermissionRequiredMixin, UserPassesTestMixin  # loads its models

    if not issubclass(cls, (PermissionRequiredMixin, UserPassesTestMixin)):
        return True  # LoginRequiredMixin asks for a user, without whom there is no key
    view: Any = cls(**callback.view_initkwargs)
    view.setup(request, *args, **kwargs)
    permitted = not isinstance(view, PermissionRequiredMixin) or view.has_permission()
    return permitted and (not isinstance(view, UserPassesTestMixin) or bool(view.get_test_func()()))
