"""Handlers that get the limit of their host as an argument, as those of AWS Lambda do."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

from asgiref.sync import iscoroutinefunction
from django.core.exceptions import ImproperlyConfigured

from ... import deadline

P = ParamSpec("P")
R = TypeVar("R")


def limited_by(argument: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Call a function inside `deadline()` of this argument: a Lambda context, seconds, or an aware
    `datetime`.

        @limited_by("context")
        @idempotent_function(data_keyword_argument="event", key="orderId")
        def handler(event, context): ...

    It stands above `@idempotent_function`, whose `idempotency` and `with_key` it shows too;
    `with_key()` has no deadline. Raises `ImproperlyConfigured` for a function without the argument.
    A call raises what `deadline()` does.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        if argument not in signature.parameters:
            raise ImproperlyConfigured(
                f"limited_by({argument!r}): {function.__qualname__}() has no such argument. "
                f"It has {', '.join(signature.parameters) or 'none'}."
            )

        def limit(args: Any, kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            return bound.arguments[argument]

        if iscoroutinefunction(function):

            @functools.wraps(function)
            async def acall(*args: Any, **kwargs: Any) -> Any:
                with deadline(limit(args, kwargs)):
                    return await cast("Any", function)(*args, **kwargs)

            return cast("Callable[P, R]", acall)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            with deadline(limit(args, kwargs)):
                return function(*args, **kwargs)

        return call

    return decorate
