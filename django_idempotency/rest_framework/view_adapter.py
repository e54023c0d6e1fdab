"""Guards a DRF view that does not have the mixin."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.decorators import classonlymethod
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from ..core.policy import Policy
from ..http.atomic_requests import as_django_runs, leave_atomic_requests
from ..http.layers import Origin, layers_of, origin_of, untraced
from ..http.markers import handler_of, is_unawaited, mark, next_method
from ..http.responses import Raising
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
    """Return the callback of a view class with a guard inside.

    The class is not changed, and no new one is made.

    Raises `ImproperlyConfigured` unless the callback is provably what `as_view()` returned: a
    decorator around it copies `.cls` upward, and making the view from that would skip the
    decorator.
    """
    terms = ViewTerms(policy)
    adapted = functools.wraps(callback)(_adapted(callback, terms))
    mark(adapted, policy=policy)
    return leave_atomic_requests(adapted) if terms.leases else adapted


def _adapted(callback: Any, terms: ViewTerms) -> Callable[..., HttpResponseBase]:
    if is_unawaited(callback.cls, getattr(callback, "actions", None)):
        raise ImproperlyConfigured(asynchronous(callback.cls))
    if not is_undecorated(callback):
        raise ImproperlyConfigured(
            f"{callback.cls.__name__}.as_view() is inside another decorator, which "
            "idempotency must not skip. "
            "Put IdempotentViewMixin first in the bases of the class."
        )
    if hasattr(callback.cls, "get_idempotency_policy"):
        raise ImproperlyConfigured(
            f"{callback.cls.__name__} has IdempotentViewMixin already. Set its "
            "`idempotency` attribute."
        )
    return _made(callback, terms)


def _made(callback: Any, terms: ViewTerms) -> Callable[..., HttpResponseBase]:
    """Return a function that makes and calls the view, as DRF's `as_view()` does, with a guard
    before the handler.
    """
    cls = callback.cls
    actions = getattr(callback, "actions", None)

    def view(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        self = cls(**callback.initkwargs)
        if actions is None:
            self.setup(request, *args, **kwargs)
        else:  # a ViewSet's
            if "get" in actions and "head" not in actions:
                actions["head"] = actions["get"]
            self.action_map = actions
            for method, action in actions.items():
                setattr(self, method, getattr(self, action))
            self.request = request
            self.args = args
            self.kwargs = kwargs
        return dispatch(
            self, request, terms, functools.partial(self.dispatch, request, *args, **kwargs)
        )

    return markcoroutinefunction(view) if iscoroutinefunction(callback) else view


def run_with_mixin(
    callback: Any,
    request: HttpRequest,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    policy: Policy,
) -> Any:
    """Return the response for process_view of the middleware.

    An exception reaches every process_exception.

    The view knows nothing of keys, so a request without a principal passes.
    """
    if handler_of(callback, request.method or "") is None and not is_undecorated(callback):
        # such as cache_page(…)(ListView.as_view()): nothing to guard, it responds with 405
        return None
    view = as_django_runs(callback, _adapted(callback, ViewTerms(policy, strict=False)))
    try:
        return view(request, *args, **kwargs)
    except Exception as error:  # noqa: BLE001 - raised where Django shows it to the middlewares
        return Raising(error)


def is_undecorated(callback: Any) -> bool:
    """Is this exactly what `as_view()` returned? Compares where its outermost layers are written.

    Deeper layers are the `dispatch` of its class and that method's decorators, which `as_view()`
    copies; those remain inside the view.
    """
    layers = _layers(callback)
    # csrf_exempt() around it is harmless: `as_view()` has done that already.
    while layers[0] is not None and layers[:1] == layers[1:2]:
        del layers[0]
    references = _references("adrf.viewsets" in sys.modules)
    return any(layers[: len(bare)] == bare for bare in map(_before_dispatch, references))


@lru_cache(maxsize=2)
def _references(adrf: bool) -> tuple[Any, ...]:
    if not adrf:
        return APIView.as_view(), ViewSet.as_view({"get": "list"})
    from adrf.views import APIView as View
    from adrf.viewsets import ViewSet as Views

    class AsyncView(View):  # type: ignore[misc]
        async def get(self, request: Any) -> None: ...

    class SyncViews(Views):  # type: ignore[misc]
        def list(self, request: Any) -> None: ...

    class AsyncViews(Views):  # type: ignore[misc]
        async def list(self, request: Any) -> None: ...

    sets = (views.as_view({"get": "list"}) for views in (SyncViews, AsyncViews))
    return (*_references(adrf=False), AsyncView.as_view(), *sets)


def _before_dispatch(reference: Any) -> list[Origin | None]:
    """Return the layers that `as_view()` itself makes: that of a ViewSet names `dispatch` as what
    it wraps.
    """
    layers = _layers(reference)
    dispatch = origin_of(untraced(reference.cls.dispatch))
    return layers[: layers.index(dispatch)] if dispatch in layers else layers


def _layers(callback: Any) -> list[Origin | None]:
    return [origin_of(layer) for layer in layers_of(callback)]
