"""The layers of a view: what its decorators and partials are around, and where each is written."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from types import FunctionType
from typing import Any

#: Where the functions are written that `as_view()` returns: module and name.
_VIEWS_OF_CLASSES = {
    ("django.views.generic.base", "view"),
    ("rest_framework.viewsets", "view"),
    ("adrf.viewsets", "view"),
    ("adrf.viewsets", "async_view"),
}
#: `csrf_exempt()`: it checks nothing, and `as_view()` of REST framework returns it.
_CSRF_EXEMPT = ("django.views.decorators.csrf", "_view_wrapper")

#: What the parameters of a view may have as defaults: none of it can be called.
_PLAIN = (type(None), bool, int, float, str, bytes)


def layers_of(callback: Any) -> Iterator[Any]:
    """Yield a callback and what it wraps, the outermost first, each once: a view may wrap itself,
    `wraps(view)(view)`.
    """
    # The layers themselves too, so that no other object gets the id of one.
    seen: dict[int, Any] = {}
    waiting = [callback]
    while waiting:
        layer = waiting.pop()
        if layer is None or id(layer) in seen:
            continue
        seen[id(layer)] = layer
        yield layer
        waiting.append(getattr(layer, "__wrapped__", None))
        if isinstance(layer, functools.partial):
            waiting.append(layer.func)


def place_of(layer: Any) -> tuple[str, str]:
    """Return where a function is written: its module and its name, which `wraps()` does not change.

    Anything else has no place: a proxy would have that of its target.
    """
    if type(layer) is not FunctionType:
        return "", ""
    return layer.__globals__.get("__name__", ""), layer.__code__.co_name


def closed_over(function: Any) -> dict[str, Any]:
    """Return what a function has closed over, by name."""
    try:
        return dict(inspect.getclosurevars(function).nonlocals)
    except (TypeError, ValueError):  # no function of Python's; a name that is not bound yet
        return {}


def held_by(layer: Any) -> Any:
    """Return what a decorator's function names as `__wrapped__`, if it has closed over it.

    Else it may call something else, as that of `AdminSite.admin_view()` does.
    """
    inner = getattr(layer, "__wrapped__", None)
    return inner if any(value is inner for value in closed_over(layer).values()) else None


def is_plain(layer: Any) -> bool:
    """Is it a function that holds nothing it might call, but its class, for `super()`?"""
    if type(layer) is not FunctionType or layer.__name__ == "<lambda>":
        return False
    defaults = [*(layer.__defaults__ or ()), *(layer.__kwdefaults__ or {}).values()]
    return (
        not hasattr(layer, "__wrapped__")
        and set(layer.__code__.co_freevars) <= {"__class__"}
        and all(type(value) in _PLAIN for value in defaults)
    )


def described(layer: Any) -> str:
    """Name a layer by where it is written: `wraps()` gives it the name of the view."""
    if type(layer) is not FunctionType:
        return f"{type(layer).__module__}.{type(layer).__qualname__}"
    return f"{'.'.join(place_of(layer))} (line {layer.__code__.co_firstlineno})"


def is_view_of_class(layer: Any) -> bool:
    """Is it a function that `as_view()` makes?"""
    return place_of(layer) in _VIEWS_OF_CLASSES


def is_undecorated(callback: Any, cls: type[Any]) -> bool:
    """Is it what `as_view()` of a class returns?

    A decorator around that would be skipped by who makes another view of the class.
    """
    while place_of(callback) == _CSRF_EXEMPT and (inner := held_by(callback)) is not None:
        callback = inner
    return is_view_of_class(callback) and closed_over(callback).get("cls") is cls
