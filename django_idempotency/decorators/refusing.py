"""Where `@idempotent()` cannot keep its promise: said when it decorates."""

from __future__ import annotations

import functools
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from ..http.markers import rest_class, view_class
from ..ninja import hook


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
    hook.refuse_misplaced(view)
    hook.refuse_generator(view)
    if (cls := view_class(view)) is not None and rest_class(view) is None:
        raise ImproperlyConfigured(
            f"@idempotent() around {cls.__name__}.as_view() would replay before the class has checked "
            "access. Put @idempotent() on the class."
        )
    refuse_access_decorator(view, name)


def refuse_access_decorator(view: Any, name: str) -> None:
    """Refuse a view whose access decorator would be below the guard."""
    if hasattr(view, "login_url"):  # what user_passes_test leaves on a view
        raise ImproperlyConfigured(
            f"@idempotent() above the access decorator of {name} would replay without asking it. Swap the two lines; on "
            "a class, put the access decorator on its dispatch."
        )


def name_of(view: Any) -> str:
    """Name a view: a partial or an instance has no name of its own."""
    return getattr(view, "__qualname__", None) or repr(view)
