"""The layers of a view: what its wrappers and partials are around, and what each has closed
over.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import CellType, CodeType, FunctionType
from typing import Any


def layers_of(callback: Any) -> Iterator[Any]:
    """Yield a callback and what it wraps, the outermost first, each once: a view may wrap itself,
    `wraps(view)(view)`.

    The wrappers of a tracer are left out.
    """
    # The layers themselves too, so that no other object gets the id of one.
    seen: dict[int, Any] = {}
    waiting = [callback]
    while waiting:
        layer = untraced(waiting.pop())
        if layer is None or id(layer) in seen:
            continue
        seen[id(layer)] = layer
        yield layer
        waiting.append(getattr(layer, "__wrapped__", None))
        if isinstance(layer, partial):
            waiting.append(layer.func)


#: Packages that wrap views to trace them, and check no access: Datadog's and New Relic's.
_TRACERS = ("ddtrace.", "newrelic.")


def untraced(layer: Any) -> Any:
    """Return what the wrappers of a tracer are around, or else the layer itself."""
    while _is_tracers(layer):
        layer = layer.__wrapped__
    return layer


def _is_tracers(layer: Any) -> bool:
    """Is it a function wrapper of wrapt, and the function that it calls a tracer's?

    What such an object says about itself is true of its target. So its classes are asked whose
    `__call__` it has.
    """
    bases = type(layer).__mro__
    wraps = next((base for base in bases if base.__name__ == "_FunctionWrapperBase"), None)
    if (
        wraps is None
        or next(base for base in bases if "__call__" in vars(base)).__module__ != wraps.__module__
    ):
        return False
    wrapper = layer._self_wrapper  # noqa: SLF001 - wrapt's documentation names it
    return type(wrapper) is FunctionType and wrapper.__globals__.get("__name__", "").startswith(
        _TRACERS
    )


#: Where code is written: its file, its name, and the names that it has closed over.
Origin = tuple[str, str, tuple[str, ...]]


def origin_of(function: Any) -> Origin | None:
    """Say where a function is written; `None` for anything else, since a proxy has the code of its
    target.

    The code object itself does not tell: Datadog replaces that of each view.
    """
    if type(function) is not FunctionType:
        return None
    code = function.__code__
    return code.co_filename, code.co_name, code.co_freevars


def name_of_code(module: str, code: CodeType) -> str:
    """Name a layer by where it is written: `functools.wraps` gives it the name of the view."""
    return f"{module}.{code.co_name} (line {code.co_firstlineno})"


def cells_of(function: Any) -> dict[str, Any]:
    """Return what a function has closed over, by name, except what is not bound yet."""
    closure = getattr(function, "__closure__", None)
    return dict(_contents(function.__code__.co_freevars, closure)) if closure else {}


def _contents(names: tuple[str, ...], cells: tuple[CellType, ...]) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(names, cells, strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not bound yet
            continue
