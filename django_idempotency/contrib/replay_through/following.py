"""Follows what a decorator of REPLAY_THROUGH returns: around a view of ours it is the same, but for
that view.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from types import FunctionType
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http import HttpResponse

from ...http.following import Path, called
from ...http.layers import cells_of, origin_of


def inside(
    layer: FunctionType, cells: dict[str, Any], path: Path, decorators: Sequence[Any]
) -> Any:
    """Return the view inside of what one of the decorators returned, to be asked again; `None`: it
    is of none of them.
    """
    view = _async_view if iscoroutinefunction(layer) else _view
    for decorate in decorators:
        known = None if isinstance(decorate, type) else _around(decorate, view)
        if type(known) is FunctionType and _made_of(known) == _made_of(layer):
            ours = cells_of(known)
            others = [
                name for name, value in ours.items() if name not in cells or cells[name] != value
            ]
            if len(others) == 1 and ours[others[0]] is view and others[0] in cells:
                path.checks.append(functools.partial(_reaches, known))
                return cells[others[0]]
    return None


def _made_of(function: FunctionType) -> tuple[Any, ...]:
    return origin_of(function), function.__defaults__, function.__kwdefaults__


@functools.lru_cache(maxsize=64)
def _around(decorate: Any, view: Any) -> Any:
    try:
        return decorate(view)
    except Exception:  # noqa: BLE001 - it is the project's, and not for such a view
        return None


class _Reached(HttpResponse):
    """The view would have run."""


def _view(*_: Any, **__: Any) -> HttpResponse:
    return _Reached()


async def _async_view(*_: Any, **__: Any) -> HttpResponse:
    return _Reached()


def _reaches(decorated: Any, *args: Any, **kwargs: Any) -> bool:
    return isinstance(called(decorated, *args, **kwargs), _Reached)
