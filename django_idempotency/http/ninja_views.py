"""Recognizes the views of django-ninja, and their operations. Does not import ninja.

What ninja offers no public way to ask is asked here; tests/neighbours/test_ninja.py fails when a version changes that.
"""

from __future__ import annotations

from typing import Any

from .layers import cells_of, layers_of

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
    for layer in layers_of(callback):
        if is_ninja(layer) and "self" in (cells := cells_of(layer)):
            return list(getattr(cells["self"], "operations", ()))
    return []


def handled_exceptions(api: Any) -> Any:
    """Return the exception classes that an API has handlers for.

    `api.on_exception()` finds one for every exception, ninja's own, so it cannot say whether the project has one for
    ours.
    """
    return getattr(api, "_exception_handlers", {})
