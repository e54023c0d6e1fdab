"""The layers of a view that its decorators and partials name."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any


def layers_of(callback: Any) -> Iterator[Any]:
    """Yield a callback and what it wraps, the outermost first. A layer that wraps itself, `wraps(view)(view)`, is the last."""
    seen = set[int]()
    while callback is not None and id(callback) not in seen:
        seen.add(id(callback))
        yield callback
        callback = callback.func if isinstance(callback, partial) else getattr(callback, "__wrapped__", None)
