"""The layers of a view: what its wrappers and partials are around."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
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
