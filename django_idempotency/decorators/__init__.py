"""The `@idempotent` decorator for any view: sync or async, function, method or class."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar, overload

from ..conf import require_installed
from ..core.policy import Policy
from ..core.records import MISSING
from ..http.admission import compile_expressions
from ..http.markers import mark, rest_class
from .classes import Method, guarded_class, is_method
from .refusing import refuse_second_policy, refuse_what_cannot_work
from .views import guarded_view

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def idempotency_exempt(view: Decorated) -> Decorated:
    """Exempt a view from the middleware, such as login, signup or tokens, whose responses must not
    be stored.
    """
    mark(view, exempt=True)
    return view


@overload
def idempotent(view: Decorated, /) -> Decorated: ...


@overload
def idempotent(**fields: Any) -> Callable[[Decorated], Decorated]: ...


def idempotent(view: Any = MISSING, /, **fields: Any) -> Any:
    """Make a view safe to retry.

    Takes the fields of `Policy`, or nothing: `@idempotent` is `@idempotent()`.

    On a function it goes below `login_required` and similar decorators, on a DRF function above
    `@api_view`; on a class it guards the handlers of unsafe methods. Raises `ValueError` for an
    invalid field, and `ImproperlyConfigured` where it could not keep its promise.
    """
    require_installed()
    policy = Policy(**fields)
    compile_expressions(policy)

    def decorate(view: Any) -> Any:
        refuse_second_policy(view, policy)
        if inspect.isclass(view):
            return guarded_class(view, policy)
        refuse_what_cannot_work(view)
        if rest_class(view) is not None:
            from ..rest_framework.without_mixin import with_mixin

            return with_mixin(view, policy)
        if is_method(view):
            return Method(view, policy)
        return guarded_view(view, policy)

    return decorate if view is MISSING else decorate(view)
