"""Recognizes the views of django-ninja and their operations, and prepares functions to become one.

Does not import ninja.

What ninja offers no public way to ask is asked here; tests/proofs/neighbours/test_ninja.py fails
when a version changes that. Ninja calls the functions in `_ninja_contribute_to_operation` once it
has made the operation.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, get_type_hints

from django.core.exceptions import ImproperlyConfigured

from ... import Policy
from ...api.requests import ViewKind
from ...http.kinds import Function, Marks, Reason
from ...http.layers import closed_over, layers_of

#: The module of ninja's views.
MODULE = "ninja.operation"

_CONTRIBUTE = "_ninja_contribute_to_operation"
#: The attribute that ninja sets on a function that is an operation.
_OPERATION = "_ninja_operation"
#: The attribute that django-ninja-extra sets on a controller's method that is a route.
ROUTE = "OPERATION_ENDPOINT_KEY"

INSIDE = Reason(
    "inside",
    "it is a django-ninja operation, which only @idempotent() guards after its authentication",
)


class Ninja(ViewKind):
    """The middleware leaves them alone: access to a replay is checked inside an operation."""

    packages = ("ninja",)
    left = INSIDE
    called = "an operation of django-ninja"
    fix = (
        "Put @idempotent() on its function, directly below the decorator that makes it an operation"
    )
    astray = (
        "A function with @idempotent() was called inside ninja, but not by the operation that it "
        "guards. Put @api.post(…) directly above @idempotent(), and use functools.wraps() in every "
        "decorator between them."
    )

    def owns(self, view: Any) -> bool:
        """Is it a function that ninja has made of a path?"""
        return getattr(view, "__module__", None) == MODULE

    def operations_of(self, callback: Any) -> list[Any]:
        """Return those of its path, read from its closure."""
        for layer in layers_of(callback):
            held = closed_over(layer) if self.owns(layer) else {}
            if "self" in held:
                return list(getattr(held["self"], "operations", ()))
        return []

    def offer(self, guarded: Callable[..., Any], view: Callable[..., Any], policy: Policy) -> None:
        """Let a guarded function become an operation: ninja calls back, and reads its
        parameters.

        Raises `ImproperlyConfigured` above `@api.post`, and in `decorate_view`, which is outside
        ninja's checks.
        """
        _refuse(view)

        def guard(operation: Any) -> None:
            # Not above: needs ninja, which has made the operation.
            from .operations import (
                guard_operation,
            )

            guard_operation(operation, policy)

        _contribute(guarded, guard)
        try:
            parameters = inspect.signature(view).parameters.values()
        except ValueError:  # not written in Python: not an operation
            return
        if any(isinstance(parameter.annotation, str) for parameter in parameters):
            # Ninja resolves string annotations with the globals of the function that it gets, which
            # are ours.
            read = [
                parameter.replace(annotation=_read(parameter.annotation, view))
                for parameter in parameters
            ]
            guarded.__signature__ = inspect.Signature(read)  # type: ignore[attr-defined]

    def guard_method(
        self, method: Function, marks: Marks, policy: Policy, guard: Function, owner: type[Any]
    ) -> bool:
        """Guard a route of a controller of django-ninja-extra."""
        if ROUTE not in marks and ROUTE not in vars(method):
            return False
        from . import controllers  # not above: needs django-ninja-extra, which has made it a route

        vars(method).update(marks)
        _contribute(method, controllers.guarding(method, policy, guard))
        return True


def _refuse(view: Any) -> None:
    """Refuse what ninja would call without its guard, or would not call any more."""
    *_, innermost = layers_of(view)
    bound = getattr(innermost, "__self__", None)
    if any(cls.__module__ == MODULE for cls in type(bound).__mro__):
        path = getattr(bound, "path", "")
        raise ImproperlyConfigured(
            f"decorate_view(idempotent()) on the operation {path!r} would replay "
            "before ninja has authenticated "
            "the client. Put @idempotent() below the @api.post line, as a decorator of "
            "the function."
        )
    if hasattr(view, _OPERATION):
        raise ImproperlyConfigured(
            f"@idempotent() is above the decorator that makes {view.__qualname__} an "
            "operation, where it has no "
            "effect. Swap the two lines: @api.post(…) above @idempotent()."
        )


def _contribute(function: Callable[..., Any], callback: Callable[[Any], None]) -> None:
    """Have ninja call back with the operation that it makes of a function."""
    setattr(function, _CONTRIBUTE, [*getattr(function, _CONTRIBUTE, ()), callback])


def _read(annotation: Any, view: Callable[..., Any]) -> Any:
    """Resolve a string annotation in its module.

    One that cannot be resolved is left for ninja to report.
    """
    with suppress(Exception):  # a name imported for type checking only, such as the request's
        stand_in = SimpleNamespace(__annotations__={"it": annotation})
        names = getattr(inspect.unwrap(view), "__globals__", {})
        return get_type_hints(stand_in, globalns=names, include_extras=True)["it"]
    return annotation
