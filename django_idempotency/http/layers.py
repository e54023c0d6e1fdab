"""The layers of a view: what its wrappers and partials are around, and what each has closed over."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import CellType, CodeType
from typing import Any


def layers_of(callback: Any) -> Iterator[Any]:
    """Yield a callback and what it wraps, the outermost first, each once: a view may wrap itself, `wraps(view)(view)`."""
    seen: dict[int, Any] = {}  # the layers themselves too, so that no other object gets the id of one
    waiting = [callback]
    while waiting:
        layer = waiting.pop()
        if layer is None or id(layer) in seen:
            continue
        seen[id(layer)] = layer
        yield layer
        waiting.append(getattr(layer, "__wrapped__", None))
        if isinstance(layer, partial):
            waiting.append(layer.func)


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
