"""Where `@idempotent()` cannot keep its promise: said when it decorates."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.views import View

from ..http.kinds import kinds
from ..http.markers import UNSAFE_HANDLERS, own_methods, rest_class, view_class


def refuse_what_cannot_work(view: Any) -> None:
    """Raise `ImproperlyConfigured` for what is not a view, and for a decorator that is in the wrong place."""
    name = name_of(view)
    if not callable(view):
        raise ImproperlyConfigured(f"@idempotent() needs a view, not {name}.")
    if view.__module__ == "django.utils.decorators" or (
        isinstance(view, functools.partial) and hasattr(view, "__wrapped__")
    ):
        raise ImproperlyConfigured(
            "method_decorator(idempotent()) cannot work. Put @idempotent() on the method itself."
        )
    for kind in kinds():
        kind.refuse(view)
    _refuse_generator(view)
    if (cls := view_class(view)) is not None and rest_class(view) is None:
        raise ImproperlyConfigured(
            f"@idempotent() around {cls.__name__}.as_view() would replay before the class has checked "
            "access. Put @idempotent() on the class."
        )
    refuse_access_decorator(view, name)


def _refuse_generator(view: Any) -> None:
    """Refuse a function whose work is done while its response is sent, after the guard has closed."""
    if inspect.isgeneratorfunction(view) or inspect.isasyncgenfunction(view):
        raise ImproperlyConfigured(
            f"{view.__qualname__} is a generator: it runs while its response is sent, after the guard has closed. "
            "Do the work in a plain function, and let that return the generator."
        )


def refuse_access_decorator(view: Any, name: str) -> None:
    """Refuse a view whose access decorator would be below the guard."""
    if hasattr(view, "login_url"):  # what user_passes_test leaves on a view
        raise ImproperlyConfigured(
            f"@idempotent() above the access decorator of {name} would replay without asking it. Swap the two lines; on "
            "a class, put the access decorator on its dispatch."
        )


def refuse_other_handler(handler: Any, name: str) -> None:
    """Refuse a method that takes no request: it is a handler of a framework, which makes the response of what it returns."""
    try:
        inspect.signature(handler).bind_partial(None, None)
    except TypeError:
        raise ImproperlyConfigured(
            f"@idempotent() on {name}: it takes no request, so it is not a handler of Django's View. Put @idempotent() on a "
            "function that takes a request and returns a response, below what authenticates the client."
        ) from None


def refuse_unreached(cls: type[Any]) -> None:
    """Refuse a class whose own `dispatch()` or `as_view()` is not seen to reach the handlers: it would pass the guard by."""
    handlers = [name for name in UNSAFE_HANDLERS if hasattr(cls, name)]
    for name, leads in ("dispatch", {"dispatch", "getattr", *handlers}), ("as_view", {"as_view"}):
        for base, method in own_methods(cls, name):
            if handlers and leads & _used(cls, method):
                continue
            if handlers or name == "dispatch":
                raise ImproperlyConfigured(
                    f"@idempotent() on {cls.__name__} guards post(), put(), patch() and delete(), and {base.__name__} responds in "
                    f"{name}() without them: no super().{name}() is seen there. Put @idempotent() on a function that calls "
                    f"{cls.__name__}.as_view()(request), below what authenticates the client."
                )


def _used(cls: type[Any], method: Any) -> set[str]:
    """Return the names that a method uses, with those of the methods of its class that are among them."""
    found, waiting = set[str](), [method]
    while waiting:
        new = set(_names(getattr(inspect.unwrap(waiting.pop()), "__code__", None))) - found
        found |= new
        members = (getattr(cls, name, None) for name in new - {*View.http_method_names})
        waiting += [each for each in members if inspect.isfunction(each) and each.__module__ != View.__module__]
    return found


def _names(code: Any) -> Iterator[str]:
    """Yield the names that a function uses, and those inside of it."""
    if code is not None:
        yield from code.co_names
        for inner in code.co_consts:
            yield from _names(inner) if inspect.iscode(inner) else ()


def name_of(view: Any) -> str:
    """Name a view: a partial or an instance has no name of its own."""
    return getattr(view, "__qualname__", None) or repr(view)
