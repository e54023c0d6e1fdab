"""Guards a DRF view whose class does not have the mixin."""

from __future__ import annotations

import functools
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.decorators import classonlymethod

from ..core.policy import Policy
from ..http.atomic_requests import leave_atomic_requests
from ..http.layers import is_undecorated
from ..http.markers import is_unawaited, mark, next_method
from .guarding import IdempotentViewMixin, ViewTerms, asynchronous, dispatch, view_terms_of


def guard_class(cls: type[Any], policy: Policy) -> type[Any]:
    """Guard a decorated DRF view class, as the mixin would. No new class is made."""
    ours = IdempotentViewMixin.get_idempotency_policy
    chosen = getattr(cls, "get_idempotency_policy", None)
    if issubclass(cls, IdempotentViewMixin) or chosen is ours:
        raise ImproperlyConfigured(
            f"{cls.__name__} has IdempotentViewMixin already. Set its `idempotency` attribute."
        )
    if is_unawaited(cls):
        raise ImproperlyConfigured(asynchronous(cls))
    through = next_method(cls, "dispatch")
    as_view = next_method(cls, "as_view")

    @functools.wraps(through)
    def guarded(self: Any, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return dispatch(
            self,
            request,
            view_terms_of(type(self), vars(self)),
            functools.partial(through, self, request, *args, **kwargs),
        )

    @functools.wraps(as_view)
    def making(klass: type[Any], *args: Any, **kwargs: Any) -> Any:
        view = as_view(klass, *args, **kwargs)
        terms = view_terms_of(klass, kwargs)
        return leave_atomic_requests(view) if terms.leases else view

    cls.dispatch = guarded
    cls.as_view = classonlymethod(making)
    cls.idempotency = policy
    cls.get_idempotency_policy = chosen or ours
    return cls


def with_mixin(callback: Any, policy: Policy) -> Any:
    """Return a view of REST framework, which an `as_view()` has made, with a guard inside.

    Raises `ImproperlyConfigured` for a view that is not made so.
    """
    terms = ViewTerms(policy)
    view = functools.wraps(callback)(guarded_inside(callback, terms))
    mark(view, policy=policy)
    return leave_atomic_requests(view) if terms.leases else view


def guarded_inside(callback: Any, terms: ViewTerms) -> Any:
    """Return a view like that of an `as_view()`, with a guard before the handler.

    It makes the view object as REST framework's own `as_view()` does, of the class and the
    arguments that the callback has: a second call of `as_view()` might choose others. Raises
    `ImproperlyConfigured` for a view that no `as_view()` has made: a decorator around it copies
    `.cls` upward, and a view that is made of that would skip the decorator.
    """
    cls = callback.cls
    actions = getattr(callback, "actions", None)
    if is_unawaited(cls, actions):
        raise ImproperlyConfigured(asynchronous(cls))
    if not is_undecorated(callback, cls):
        raise ImproperlyConfigured(
            f"{cls.__name__}.as_view() is inside another decorator, which idempotency must not "
            "skip. Put IdempotentViewMixin first in the bases of the class."
        )
    if hasattr(cls, "get_idempotency_policy"):
        raise ImproperlyConfigured(
            f"{cls.__name__} has IdempotentViewMixin already. Set its `idempotency` attribute."
        )

    def view(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        self = cls(**callback.initkwargs)
        if actions is None:
            self.setup(request, *args, **kwargs)
        else:
            _set_up(self, actions, request, args, kwargs)
        run = functools.partial(self.dispatch, request, *args, **kwargs)
        return dispatch(self, request, terms, run)

    return markcoroutinefunction(view) if iscoroutinefunction(callback) else view


def _set_up(
    view: Any, actions: dict[str, str], request: HttpRequest, args: Any, kwargs: Any
) -> None:
    """Set a ViewSet up, as its `as_view()` does."""
    if "get" in actions and "head" not in actions:
        actions["head"] = actions["get"]
    view.action_map = actions
    for method, action in actions.items():
        setattr(view, method, getattr(view, action))
    view.request = request
    view.args = args
    view.kwargs = kwargs
