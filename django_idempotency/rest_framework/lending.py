"""Lending the mixin to a DRF view that does not have it."""

from __future__ import annotations

from functools import lru_cache
from types import CodeType
from typing import Any, NoReturn

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.template.response import SimpleTemplateResponse
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from ..core.policy import Policy
from ..marks import handler_of
from ..transactions import declared_non_atomic
from .mixins import IdempotentViewMixin


def lent_class(cls: type[Any], policy: Policy, *, strict: bool = True) -> type[Any]:
    """Return a subclass of a DRF view class that has the mixin."""
    if issubclass(cls, IdempotentViewMixin):
        raise ImproperlyConfigured(f"{cls.__name__} has IdempotentViewMixin already. Set its `idempotency` attribute.")
    members = {
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "idempotency": policy,
        "_idempotency_strict": strict,
    }
    return type(cls.__name__, (IdempotentViewMixin, cls), members)


def lend(callback: Any, policy: Policy, *, strict: bool = True) -> Any:
    """Return the callback of a view class with the mixin in it.

    Raises `ImproperlyConfigured` unless the callback is provably what `as_view()` returned: a decorator around it
    copies `.cls` upward, and rebuilding the view from that would skip the decorator.
    """
    if not is_bare(callback):
        raise ImproperlyConfigured(
            f"{callback.cls.__name__}.as_view() stands inside another decorator, which idempotency must not skip. "
            "Put IdempotentViewMixin first in the bases of the class."
        )
    cls = lent_class(callback.cls, policy, strict=strict)
    actions = getattr(callback, "actions", None)
    arguments = (actions,) if actions else ()
    lent = cls.as_view(*arguments, **callback.initkwargs)
    for name in ("__name__", "__qualname__", "__doc__", "__module__"):
        setattr(lent, name, getattr(callback, name))
    for name, value in vars(callback).items():  # what the project has marked it with
        vars(lent).setdefault(name, value)
    lent._non_atomic_requests.update(declared_non_atomic(callback))  # noqa: SLF001 - made by leave_atomic_requests()
    lent.idempotency_policy = policy
    return lent


@lru_cache(maxsize=1024)
def lent_to_middleware(callback: Any) -> Any:
    """Lend to a callback of the URLconf, once."""
    return lend(callback, Policy(), strict=False)


def run_lent(callback: Any, request: HttpRequest, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Answer for the middleware, from its process_view. What the view raises reaches every process_exception."""
    if handler_of(callback, request.method or "") is None and not is_bare(callback):
        return None  # cache_page(…)(ListView.as_view()), say: nothing to guard, it answers 405
    lent = lent_to_middleware(callback)
    try:
        return lent(request, *args, **kwargs)
    except Exception as error:  # noqa: BLE001 - raised again, where Django shows it to the middlewares
        return _Raising(error)


class _Raising(SimpleTemplateResponse):
    """Raises where Django renders: there it asks `process_exception`, which it does not after a `process_view`."""

    def __init__(self, error: Exception) -> None:
        super().__init__("")
        self.error = error

    def render(self) -> NoReturn:
        raise self.error


def is_bare(callback: Any) -> bool:
    """Is this what `as_view()` returned, with nothing around it? Told by the code of its outermost layers.

    Further in, `as_view()` has copied what decorates `dispatch`, which stays inside the view.
    """
    layers = _layers(callback)
    return any(layers[: len(bare)] == bare for bare in map(_layers, _references()))


@lru_cache(maxsize=1)
def _references() -> tuple[Any, ...]:
    return APIView.as_view(), ViewSet.as_view({"get": "list"})


def _layers(callback: Any) -> list[CodeType | None]:
    layers = []
    while callback is not None:
        layers.append(getattr(callback, "__code__", None))
        callback = getattr(callback, "__wrapped__", None)
    return layers
