"""A decorated method: it is guarded once its class exists."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.views import View

from ..core.policy import Policy
from ..http.kinds import kinds
from ..http.markers import MARK, UNSAFE_HANDLERS, Mark, mark, mark_of
from .classes import guard_handlers
from .refusing import name_of
from .views import guarded_view

_HIDDEN = (
    "another decorator above it, such as a method_decorator or a staticmethod, hides it "
    "from its class. "
    "Swap the two lines, or put @idempotent() on a function."
)


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
        # What decorators there have set.
        above = {name: value for name, value in vars(self).items() if name not in bare}
        if mark_of(self).exempt:
            above[MARK] = Mark(exempt=True)
        if any(
            kind.guard_method(self._method, above, self._policy, guarded_view, owner)
            for kind in kinds()
        ):
            return
        if not issubclass(owner, View) or hasattr(owner, "initialize_request"):
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
