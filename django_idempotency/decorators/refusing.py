"""Where `@idempotent()` cannot keep its promise: said when it decorates."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from ..core.policy import Policy
from ..http.markers import (
    UNSAFE_HANDLERS,
    allowed_handlers,
    carriers,
    decorated_by,
    handler_of,
    mark_of,
    names_used,
    own_methods,
    rest_class,
    view_class,
)


def refuse_what_cannot_work(view: Any) -> None:
    """Raise `ImproperlyConfigured` for what is not a view, and for a decorator that is in the wrong
    place.
    """
    name = name_of(view)
    if isinstance(view, Policy):
        raise ImproperlyConfigured(
            "@idempotent() takes the fields of a Policy. Type @idempotent(required=True, …)."
        )
    if not callable(view):
        raise ImproperlyConfigured(f"@idempotent() needs a view, not {name}.")
    if view.__module__ == "django.utils.decorators" or (
        isinstance(view, functools.partial) and hasattr(view, "__wrapped__")
    ):
        raise ImproperlyConfigured(
            "method_decorator(idempotent()) cannot work. Put @idempotent() on the method itself."
        )
    _refuse_generator(view)
    refuse_safe_methods(view)
    cls = view_class(view)
    if cls is not None and rest_class(view) is None:
        raise ImproperlyConfigured(
            f"@idempotent() around {cls.__name__}.as_view() would replay before the class "
            "has checked "
            "access. Put @idempotent() on the class."
        )
    refuse_access_decorator(view, name)


def refuse_second_policy(view: Any, policy: Policy) -> None:
    """Refuse a view that another `@idempotent()` guards by other terms: only those of the outer one
    would count.

    A class that inherits a guard may have a decorator of its own.
    """
    if inspect.isclass(view):
        below = [*_own_guards(view)]
        name = view.__name__
    else:
        below = [mark_of(each).policy for each in carriers(view)]
        name = name_of(view)
    if other := next((each for each in below if each is not None and each != policy), None):
        raise ImproperlyConfigured(
            f"{name} has two guards with different policies, {_spelled(policy)} and "
            f"{_spelled(other)}, and only the outer "
            "one would count. Type one of them."
        )


def _own_guards(cls: type[Any]) -> Iterator[Policy | None]:
    """Yield the policies that a class has by a decorator of its own or as its attribute, and by
    those of its methods.
    """
    yield decorated_by(cls)
    for name in UNSAFE_HANDLERS:
        marked = mark_of(vars(cls).get(name))
        if marked.placed:
            yield marked.policy


def _spelled(policy: Policy) -> str:
    fields = ", ".join(f"{name}={value!r}" for name, value in policy.given().items())
    return f"Policy({fields})"


def refuse_safe_methods(view: Any) -> None:
    """Refuse a view that is known to allow safe methods only: a key guards none of them."""
    if rest_class(view) is not None:
        unsafe = [name for name in UNSAFE_HANDLERS if handler_of(view, name) is not None]
    else:
        unsafe = allowed_handlers(view)
    if not unsafe:
        raise ImproperlyConfigured(
            f"@idempotent() on {name_of(view)} guards nothing: the view allows no unsafe "
            "method, and a GET is never guarded. "
            "Let it take POST, or take @idempotent() away."
        )


def _refuse_generator(view: Any) -> None:
    """Refuse a function whose work is done while its response is sent, after the guard has
    closed.
    """
    if inspect.isgeneratorfunction(view) or inspect.isasyncgenfunction(view):
        raise ImproperlyConfigured(
            f"{view.__qualname__} is a generator: it runs while its response is sent, "
            "after the guard has closed. "
            "Do the work in a plain function, and let that return the generator."
        )


def refuse_access_decorator(view: Any, name: str) -> None:
    """Refuse a view whose access decorator would be below the guard."""
    if hasattr(view, "login_url"):  # what user_passes_test leaves on a view
        raise ImproperlyConfigured(
            f"@idempotent() above the access decorator of {name} would replay without "
            "asking it. Swap the two lines; on "
            "a class, put the access decorator on its dispatch."
        )


def refuse_other_handler(handler: Any, name: str) -> None:
    """Refuse a method that takes no request: it is a handler of a framework, which makes the
    response of what it returns.
    """
    try:
        inspect.signature(handler).bind_partial(None, None)
    except TypeError:
        raise ImproperlyConfigured(
            f"@idempotent() on {name}: it takes no request, so it is not a handler of "
            "Django's View. Put @idempotent() on a "
            "function that takes a request and returns a response, below what "
            "authenticates the client."
        ) from None


def refuse_unreached(cls: type[Any]) -> None:
    """Refuse a class whose own `dispatch()` or `as_view()` is not seen to reach the handlers: it
    would pass the guard by.
    """
    handlers = [name for name in UNSAFE_HANDLERS if hasattr(cls, name)]
    for name, leads in ("dispatch", {"dispatch", "getattr", *handlers}), ("as_view", {"as_view"}):
        for base, method in own_methods(cls, name):
            if handlers and leads & names_used(cls, method):
                continue
            if handlers or name == "dispatch":
                raise ImproperlyConfigured(
                    f"@idempotent() on {cls.__name__} guards post(), put(), patch() and "
                    f"delete(), and {base.__name__} responds in "
                    f"{name}() without them: no super().{name}() is seen there. Put "
                    "@idempotent() on a function that calls "
                    f"{cls.__name__}.as_view()(request), below what authenticates the client."
                )


def name_of(view: Any) -> str:
    """Name a view: a partial or an instance has no name of its own."""
    return getattr(view, "__qualname__", None) or repr(view)
