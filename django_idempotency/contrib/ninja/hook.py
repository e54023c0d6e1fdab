"""What `@idempotent()` sets on a function in case ninja makes it an operation. Does not import ninja.

Ninja calls the functions in `_ninja_contribute_to_operation` once it has made the operation.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, get_type_hints

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest

from ...core.policy import Policy
from ...errors import ConfigurationError
from ...http.admission import key_to_guard
from ...http.exchange import noted_of
from ...http.layers import layers_of
from ...http.ninja_views import MODULE, is_ninja
from .calls import OperationCall

_CONTRIBUTE = "_ninja_contribute_to_operation"
#: The attribute that ninja sets on a function that is an operation.
_OPERATION = "_ninja_operation"
#: The attribute that django-ninja-extra sets on a controller's method that is a route.
ROUTE = "OPERATION_ENDPOINT_KEY"


def refuse_misplaced(view: Any) -> None:
    """Refuse `@idempotent()` above `@api.post`, and in `decorate_view`, which is outside ninja's checks."""
    *_, innermost = layers_of(view)
    bound = getattr(innermost, "__self__", None)
    if any(cls.__module__ == MODULE for cls in type(bound).__mro__):
        path = getattr(bound, "path", "")
        raise ImproperlyConfigured(
            f"decorate_view(idempotent()) on the operation {path!r} would replay before ninja has authenticated "
            "the client. Put @idempotent() below the @api.post line, as a decorator of the function."
        )
    if hasattr(view, _OPERATION):
        raise ImproperlyConfigured(
            f"@idempotent() is above the decorator that makes {view.__qualname__} an operation, where it has no "
            "effect. Swap the two lines: @api.post(…) above @idempotent()."
        )


def refuse_generator(view: Any) -> None:
    """Refuse a function whose work is done while its response is sent, after the guard has closed."""
    if inspect.isgeneratorfunction(view) or inspect.isasyncgenfunction(view):
        raise ImproperlyConfigured(
            f"{view.__qualname__} is a generator: it runs while its response is sent, after the guard has closed. "
            "Do the work in a plain function, and let that return the generator."
        )


def contribute(function: Callable[..., Any], callback: Callable[[Any], None]) -> None:
    """Have ninja call back with the operation that it makes of a function."""
    setattr(function, _CONTRIBUTE, [*getattr(function, _CONTRIBUTE, ()), callback])


def offer(guarded: Callable[..., Any], view: Callable[..., Any], policy: Policy) -> None:
    """Let a guarded function become an operation: ninja calls back, and reads its parameters."""

    def guard(operation: Any) -> None:
        from .operations import guard_operation

        guard_operation(operation, policy)

    contribute(guarded, guard)
    try:
        parameters = inspect.signature(view).parameters.values()
    except ValueError:  # not written in Python: not an operation
        return
    if any(isinstance(parameter.annotation, str) for parameter in parameters):
        # Ninja resolves string annotations with the globals of the function that it gets, which are ours.
        read = [parameter.replace(annotation=_read(parameter.annotation, view)) for parameter in parameters]
        guarded.__signature__ = inspect.Signature(read)  # type: ignore[attr-defined]


def _read(annotation: Any, view: Callable[..., Any]) -> Any:
    """Resolve a string annotation in its module. One that cannot be resolved is left for ninja to report."""
    with suppress(Exception):  # a name imported for type checking only, such as the request's
        stand_in = SimpleNamespace(__annotations__={"it": annotation})
        return get_type_hints(stand_in, globalns=getattr(inspect.unwrap(view), "__globals__", {}), include_extras=True)[
            "it"
        ]
    return annotation


def call_of(request: Any, policy: Policy) -> OperationCall | None:
    """Return the operation's call that a guarded function runs in; `None` if it is not an operation's.

    Raises `ConfigurationError` if it is called inside ninja, but not by its own operation: it is unknown whether
    ninja's checks were made.
    """
    if not isinstance(request, HttpRequest):
        return None
    exchange = noted_of(request)
    call = None if exchange is None else exchange.entry
    if isinstance(call, OperationCall) and call.policy is policy:
        return call
    if (
        is_ninja(getattr(request.resolver_match, "func", None))
        and key_to_guard(request, policy, by="ninja") is not None
    ):
        raise ConfigurationError(
            "A function with @idempotent() was called inside ninja, but not by the operation that it guards. Put "
            "@api.post(…) directly above @idempotent(), and use functools.wraps() in every decorator between them."
        )
    return None
