"""A class-based view under guard: its handlers of unsafe methods, or one that is decorated
alone.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils.decorators import classonlymethod
from django.views import View

from ..core.policy import Policy
from ..http.atomic_requests import leave_atomic_requests
from ..http.kinds import kind_of, kinds
from ..http.markers import MARK, UNMARKED, UNSAFE_HANDLERS, Mark, mark, mark_of, next_method
from ..http.unguarded import watched
from .refusing import name_of, refuse_access_decorator, refuse_other_handler, refuse_unreached
from .views import guarded_view, leases

_HIDDEN = (
    "another decorator above it, such as a method_decorator or a staticmethod, hides it "
    "from its class. "
    "Swap the two lines, or put @idempotent() on a function."
)


def guarded_class(cls: type[Any], policy: Policy) -> type[Any]:
    """Guard a class: Django's, DRF's or another package's."""
    if not issubclass(cls, View):
        raise ImproperlyConfigured(
            f"@idempotent() on {cls.__name__}: it is not a subclass of View."
        )
    if hasattr(cls, "initialize_request"):  # DRF's, recognized without importing DRF
        from ..rest_framework.without_mixin import guard_class

        return guard_class(cls, policy)
    guarded = kind_of(cls).guard_class(cls, policy)
    if guarded is not None:
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


class Method:
    """Holds a decorated method until its class exists, and then guards it there.

    A method that cannot be guarded raises when it is looked up, as by `as_view()`. Before Python
    3.12 an exception in `__set_name__` would only appear as the cause of another.
    """

    def __init__(self, method: Callable[..., Any], policy: Policy) -> None:
        # A decorator above, such as DRF's @action, asks for its name.
        functools.update_wrapper(self, method)
        self._method = method
        self._policy = policy
        # In its __dict__: decorators around it copy that, so `manage.py check` finds it.
        mark(self, refusal=f"@idempotent() on {name_of(method)}: {_HIDDEN}")

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        raise ImproperlyConfigured(mark_of(self).refusal)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise ImproperlyConfigured(mark_of(self).refusal)

    def __set_name__(self, owner: type[Any], name: str) -> None:
        try:
            self._guard(owner, name)
        except ImproperlyConfigured as error:
            mark(self, refusal=str(error))
            setattr(owner, name, self)

    def _guard(self, owner: type[Any], name: str) -> None:
        setattr(owner, name, self._method)
        bare = vars(Method(self._method, self._policy))
        # Decorators above have set these.
        above = {name: value for name, value in vars(self).items() if name not in bare}
        if mark_of(self).exempt:
            above[MARK] = Mark(exempt=True)
        is_rest = hasattr(owner, "initialize_request")
        if not is_rest and any(
            kind.guard_method(self._method, above, self._policy, guarded_view, owner)
            for kind in (kind_of(owner), *kinds())
        ):
            return
        if is_rest or not issubclass(owner, View):
            raise ImproperlyConfigured(
                f"@idempotent() on {owner.__name__}.{name}: methods are guarded in "
                "Django's class-based views. "
                "In DRF mix IdempotentViewMixin into the class; get_idempotency_policy() "
                "chooses a policy for each action."
            )
        if name not in UNSAFE_HANDLERS:
            raise ImproperlyConfigured(
                f"@idempotent() on {owner.__name__}.{name}: it is not one of the handlers "
                f"{UNSAFE_HANDLERS}."
            )
        guard_handlers(owner, [name], self._policy)
        mark(vars(owner)[name], placed=True)


def is_method(view: Any) -> bool:
    """Is it defined in a class body? A bound method counts as a function."""
    return (
        inspect.isfunction(view)
        and "." in getattr(view, "__qualname__", "").rpartition("<locals>.")[2]
    )
