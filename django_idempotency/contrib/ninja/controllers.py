"""Methods of django-ninja-extra's controllers.

Imported once there is one: it needs that package.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction
from ninja_extra.constants import ROUTE_OBJECT
from ninja_extra.reflect import reflect

from ... import Policy
from .operations import guard_operation


def guarding(
    method: Callable[..., Any], policy: Policy, guard: Callable[..., Any]
) -> Callable[[Any], None]:
    """Return what guards the operation of a method that is a route: after the permissions of its
    controller.

    The package turns it into a function that takes the request and finds the controller: `guard`
    takes that one.
    """
    route = reflect.get_metadata_or_raise_exception(ROUTE_OBJECT, method)
    route.view_func = method
    route.is_async = iscoroutinefunction(method)

    def guard_route(operation: Any) -> None:
        operation.view_func = guard(operation.view_func, policy)
        guard_operation(operation, policy)

    return guard_route
