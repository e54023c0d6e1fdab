"""Check for middlewares that respond for a view that raises, where the view's guard cannot see it."""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage

from ..http.views import route_of
from .catalogue import finding
from .middleware import answering_exceptions
from .settings import check_settings
from .urlconf import has_operations, name_of, open_handlers, views


def check_exceptions(**_: Any) -> list[CheckMessage]:
    """Find middlewares whose process_exception may respond outside of a view's own guard."""
    if check_settings() or not (answering := answering_exceptions()):
        return []
    guarded = [f"{name_of(callback)} ({leading[0].path})" for callback, leading in views() if _guards_itself(callback)]
    if not guarded:
        return []
    others = f" and {len(guarded) - 1} more" if len(guarded) > 1 else ""
    return [finding("W085", other=path, view=guarded[0], others=others) for path in answering]


def _guards_itself(callback: Any) -> bool:
    """Does a view have the decorator or the mixin? What has operations responds to exceptions itself."""
    if has_operations(callback):
        return False
    facts = [route_of(callback, name) for name in open_handlers(callback)]
    return any(each.guards_itself and not each.exempt for each in facts)
