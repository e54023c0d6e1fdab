"""A class-based view under guard: its handlers of unsafe methods."""

from __future__ import annotations

import functools
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils.decorators import classonlymethod
from django.views import View

from ..core.policy import Policy
from ..http.atomic_requests import leave_atomic_requests
from ..http.kinds import kind_of
from ..http.markers import UNMARKED, UNSAFE_HANDLERS, mark, mark_of, next_method
from ..http.unguarded import watched
from .refusing import refuse_access_decorator, refuse_other_handler, refuse_unreached
from .views import guarded_view, leases


def guarded_class(cls: type[Any], policy: Policy) -> type[Any]:
    """Guard a class: Django's, DRF's or another package's."""
    if not issubclass(cls, View):
        raise ImproperlyConfigured(
            f"@idempotent() on {cls.__name__}: it is not a subclass of View."
        )
    if hasattr(cls, "initialize_request"):  # DRF's, recognized without importing DRF
        from ..rest_framework.without_mixin import guard_class

        return guard_class(cls, policy)
    kind = kind_of(cls)
    if kind is not None and (guarded := kind.guard_class(cls, policy)) is not None:
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
                _guard_handler(klass, name, policy)
        refuse_unreached(klass)
        begun(klass, **kwargs)  # last: the policy of the nearest base wins

    mark(__init_subclass__, policy=policy)
    cls.__init_subclass__ = classmethod(__init_subclass__)  # type: ignore[assignment]


def guard_handlers(cls: type[Any], names: list[str], policy: Policy) -> None:
    """Guard a class's handlers, so that mixins such as LoginRequiredMixin run first."""
    refuse_unreached(cls)
    for name in names:
        _guard_handler(cls, name, policy)
    as_view = next_method(cls, "as_view")

    @functools.wraps(as_view)
    def watched_view(klass: type[Any], *args: Any, **kwargs: Any) -> Any:
        view = watched(as_view(klass, *args, **kwargs), klass, policy)
        return leave_atomic_requests(view) if leases(policy) else view

    cls.as_view = classonlymethod(watched_view)


def _guard_handler(cls: type[Any], name: str, policy: Policy) -> None:
    handler = getattr(cls, name)
    refuse_access_decorator(handler, f"{cls.__name__}.{name}")
    refuse_other_handler(handler, f"{cls.__name__}.{name}")
    setattr(cls, name, guarded_view(next_method(cls, name), policy))
