"""Recognizes the views of django-ninja, and their operations. Does not import ninja."""

from __future__ import annotations

from typing import Any

#: The modules of ninja's views.
MODULE = "ninja.operation"


def is_ninja(callback: Any) -> bool:
    """Is a callback of the URLconf one of ninja's?"""
    return getattr(callback, "__module__", None) == MODULE


def operation_of(callback: Any, method: str) -> Any:
    """Return the operation that handles a method of a ninja callback of the URLconf, or `None`."""
    return next((each for each in operations_of(callback) if method.upper() in each.methods), None)


def operations_of(callback: Any) -> list[Any]:
    """Return the operations of a ninja callback's path, read from its closure."""
    while callback is not None:
        code = getattr(callback, "__code__", None)
        if is_ninja(callback) and code is not None and "self" in code.co_freevars:
            path = callback.__closure__[code.co_freevars.index("self")].cell_contents
            return list(getattr(path, "operations", ()))
        callback = getattr(callback, "__wrapped__", None)
    return []
