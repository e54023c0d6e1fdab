"""A class-based view under guard: its handlers of unsafe methods."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.utils.decorators import classonlymethod
from django.views import View

from ..core.policy import Policy
from ..http.atomic_requests import (
    atomic_requests,
    leave_atomic_requests,
    non_atomic_aliases,
    non_atomic_aliases_of,
)
from ..http.kinds import kind_of
from ..http.markers import UNMARKED, UNSAFE_HANDLERS, mark, mark_of, next_method
from ..http.unguarded import watched
from .refusing import refuse_access_decorator, refuse_other_handler, refuse_unreached
from .views import guarded_view


def guarded_class(cls: type[Any], policy: Policy) -> type[Any]:
    """Guard a class: Django's, DRF's or another package's."""
    if not issubclass(cls, View):
        raise ImproperlyConfigured(
            f"@idempotent() on {cls.__name__}: it is not a subclass of View."
        )
    if hasattr(cls, "initialize_request"):  # DRF's, recognized without importing DRF
        from ..rest_framework.view_adapter import guard_class

        return guard_class(cls, policy)
    if (kind := kind_of(cls)) is not None and (
        guarded := kind.guard_class(cls, policy)
    ) is not None:
        return guarded
    handlers = {name: getattr(cls, name) for name in UNSAFE_HANDLERS if hasattr(cls, name)}
    guard_handlers(
        cls, [name for name, handler in handlers.items() if not mark_of(handler).exempt], policy
    )
    _guard_subclasses(cls, policy)
    return cls


def _guard_subclasses(cls: type[Any], policy: Policy) -> None:
    """Also guard the handlers that subclasses add, as DRF classes do, except those they exempt."""
    begun = next_method(cls, "__init_subclass__")

    # It becomes one.
    def __init_subclass__(klass: type[Any], /, **kwargs: Any) -> None:  # noqa: N807
        for name in UNSAFE_HANDLERS:
            handler = getattr(klass, name, None)
            if handler is not None and mark_of(handler) == UNMARKED:
                _guard_handler(klass, name, policy, on=next_method(klass, "dispatch"))
        refuse_unreached(klass)
        begun(klass, **kwargs)  # last: the policy of the nearest base wins

    mark(__init_subclass__, policy=policy)
    cls.__init_subclass__ = classmethod(__init_subclass__)  # type: ignore[assignment]


def guard_handlers(cls: type[Any], names: list[str], policy: Policy) -> None:
    """Guard a class's handlers, so that mixins such as LoginRequiredMixin run first, and leave
    ATOMIC_REQUESTS.
    """
    refuse_unreached(cls)
    dispatch = next_method(cls, "dispatch")
    non_atomic = non_atomic_aliases(dispatch)
    for name in names:
        _guard_handler(cls, name, policy, on=dispatch)
    # Django itself refuses ATOMIC_REQUESTS for async views.
    leaves = not any(iscoroutinefunction(getattr(cls, name)) for name in names)

    if leaves:

        @functools.wraps(dispatch)
        def leaving(self: View, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            handler = getattr(self, (request.method or "").lower(), None)
            left = mark_of(handler).policy is not None
            with (
                nullcontext()
                if left
                else atomic_requests(non_atomic | non_atomic_aliases_of(request))
            ):
                return dispatch(self, request, *args, **kwargs)

        cls.dispatch = leaving
    as_view = next_method(cls, "as_view")

    @functools.wraps(as_view)
    def watched_view(klass: type[Any], *args: Any, **kwargs: Any) -> Any:
        # Not on dispatch: all views of the class share its mark, with what non_atomic_requests()
        # adds for one of them.
        view = watched(as_view(klass, *args, **kwargs), klass, policy)
        return leave_atomic_requests(view) if leaves else view

    cls.as_view = classonlymethod(watched_view)


def _guard_handler(cls: type[Any], name: str, policy: Policy, *, on: Callable[..., Any]) -> None:
    handler = getattr(cls, name)
    refuse_access_decorator(handler, f"{cls.__name__}.{name}")
    refuse_other_handler(handler, f"{cls.__name__}.{name}")
    setattr(cls, name, guarded_view(next_method(cls, name), policy, on=on))
