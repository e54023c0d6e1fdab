"""Repeats the access checks before a view when the middleware replays, since the view itself does not run.

A client that has lost its permission must not read the response that it was given earlier. If a check cannot be
repeated, nothing is replayed, unless the project authorizes replays itself.
"""

from __future__ import annotations

import logging
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest
from django.views import View

from ..errors import ReplayRefused, ReplayUnchecked
from .following import Path, Unfollowed, access_mixins, path_to
from .kinds import LARGEST
from .plan import Plan

logger = logging.getLogger("django_idempotency")

_UNKNOWN: tuple[Any, Path | None] = (None, None)


def ask_again(
    plan: Plan, request: HttpRequest, callback: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, authorized: bool
) -> None:
    """Repeat every access check before a view.

    Raises `ReplayRefused` if one refuses the request, and `ReplayUnchecked` if one cannot be repeated, unless the
    project checks replays itself (`authorized`).
    """
    try:
        path = plan.followed.get((callback_id := id(callback), request.method), _UNKNOWN)[1]
        if path is None:
            path = path_to(callback, request.method or "")
            if len(plan.followed) >= LARGEST:
                plan.followed.clear()
            plan.followed[callback_id, request.method] = callback, path
    except Unfollowed as error:
        if authorized:
            return
        logger.warning(
            "A replay of %s %s is refused: %s comes before the view, and cannot be asked again. Put @idempotent() below it.",
            request.method,
            request.path,
            error,
        )
        raise ReplayUnchecked from error
    try:
        enters = not path.checks or all(check(request, *args, **kwargs) for check in path.checks)
        enters = enters and (path.cls is None or _class_passes(path.cls, path, request, args, kwargs))
    except (PermissionDenied, Http404):
        enters = False
    if not enters:
        raise ReplayRefused


def _class_passes(
    cls: type[View], path: Path, request: HttpRequest, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    """Run a class's own setup() and Django's access mixins."""
    asking = access_mixins()
    if not asking or (cls.setup is View.setup and not issubclass(cls, asking)):
        return True
    login, permission, test = asking
    view: Any = cls(**path.initkwargs)
    view.setup(request, *args, **kwargs)
    if isinstance(view, login) and not request.user.is_authenticated:
        return False  # its key may be another principal's: `scopes.before_user`
    permitted = not isinstance(view, permission) or view.has_permission()
    return permitted and (not isinstance(view, test) or bool(view.get_test_func()()))
