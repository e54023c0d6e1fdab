"""Recognizes the controllers of django-modern-rest. Does not import that package."""

from __future__ import annotations

import inspect
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from ... import Policy
from ...api.requests import ViewKind
from ...http.kinds import Function, Marks, Reason

#: The module of the class that all controllers inherit from.
MODULE = "dmr.controller"

INSIDE = Reason(
    "inside",
    "it is a django-modern-rest endpoint, which only @idempotent() guards after its authentication",
)


class ModernRest(ViewKind):
    """The middleware leaves them alone: access to a replay is checked inside an endpoint."""

    packages = ("dmr",)
    left = INSIDE
    called = "a controller of django-modern-rest"
    fix = "Put @idempotent() on each of its methods that must not run twice"
    astray = (
        "A method with @idempotent() was called inside of django-modern-rest, but not by the "
        "endpoint that it guards. Let the endpoint_cls of a controller inherit from that of the "
        "class that has the method."
    )

    def owns(self, view: Any) -> bool:
        """Is it a controller's class?"""
        return inspect.isclass(view) and any(base.__module__ == MODULE for base in view.__mro__)

    def guard_class(self, cls: type[Any], policy: Policy) -> type[Any] | None:
        """Refuse a class: its endpoints are made with it."""
        raise ImproperlyConfigured(
            f"@idempotent() on {cls.__name__}: put it on the methods of the controller."
        )

    def guard_method(
        self, method: Function, marks: Marks, policy: Policy, guard: Function, owner: type[Any]
    ) -> bool:
        """Guard the endpoint that the package makes of a controller's method."""
        if not self.owns(owner):
            return False
        # Not above: needs the package, which has made the controller.
        from .endpoints import (
            guard_endpoint,
        )

        vars(method).update(marks)
        guard_endpoint(owner, method, policy)
        return True
