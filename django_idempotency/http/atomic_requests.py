"""The transactions around a request, most of all those of ATOMIC_REQUESTS: Django runs each view in
one, and a guard inside joins it.

So nothing here opens, leaves or ends one for a guarded view. What fails is rolled back as a whole,
the record included. A lease cannot join: its record would be rolled back with the work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from django.db import connections, transaction

from ..core.conclusions import Rollback
from ..stores.interrupted import is_aborted

P = ParamSpec("P")
T = TypeVar("T")
View = TypeVar("View", bound=Callable[..., Any])


def aliases_of(view: Any) -> list[str]:
    """Return the databases on which Django begins a transaction around a view."""
    excluded = getattr(view, "_non_atomic_requests", ())
    return [
        alias
        for alias, settings in connections.settings.items()
        if settings["ATOMIC_REQUESTS"] and alias not in excluded
    ]


def as_django_runs(view: Any, run: Callable[P, T]) -> Callable[P, T]:
    """Return what runs a view in the transactions that Django would run it in.

    For the middleware, which runs views in place of Django (`BaseHandler.make_view_atomic`).
    """
    for alias in aliases_of(view):
        run = transaction.atomic(using=alias)(run)
    return run


def roll_back_request() -> None:
    """Let Django roll back all that a request has done where ATOMIC_REQUESTS holds, as it does for
    an exception.
    """
    for connection in connections.all(initialized_only=True):
        if connection.settings_dict["ATOMIC_REQUESTS"] and connection.in_atomic_block:
            connection.set_rollback(True)


def rolled_back_elsewhere(*, but: str | None) -> Rollback:
    """Say whether an error will roll a transaction of the work back on another database than `but`.

    Nothing there listens to `set_rollback()`, so in doubt it was an error.
    """
    if but is not None and len(connections.settings) == 1:
        return Rollback.NONE  # there is no other
    for connection in connections.all(initialized_only=True):
        if connection.alias == but or not connection.in_atomic_block:
            continue
        if connection.needs_rollback or is_aborted(connection):
            return Rollback.ERROR
    return Rollback.NONE


def leave_atomic_requests(view: View) -> View:
    """Exclude a view from ATOMIC_REQUESTS, as `@transaction.non_atomic_requests` does."""
    for alias in connections.settings:
        view = transaction.non_atomic_requests(using=alias)(view)
    return view
