"""Check for middlewares that respond for a view that raises, where its guard cannot see it."""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage

from .catalogue import and_more, finding
from .guards import guards_of
from .middleware import answering_exceptions
from .settings import check_settings
from .urlconf import Route, has_operations, name_of, views


def check_exceptions(**_: Any) -> list[CheckMessage]:
    """Find middlewares whose process_exception may respond outside of the guard of a view, its own or our middleware's."""
    if check_settings() or not (answering := answering_exceptions()):
        return []
    guarded = [f"{name_of(callback)} ({leading[0].path})" for callback, leading in views() if _is_guarded(leading)]
    if not guarded:
        return []
    return [finding("W085", other=path, view=guarded[0], others=and_more(guarded)) for path in answering]


def _is_guarded(leading: list[Route]) -> bool:
    """Is a view guarded on one of its routes? What has operations responds to exceptions itself."""
    return any(not has_operations(route.callback) and any(guards_of(route)) for route in leading)
