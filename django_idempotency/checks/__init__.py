"""System checks: common mistakes, and what to type instead.

`manage.py check --tag idempotency` runs only these.

A server runs none of them. So each is registered by its dotted path, and imported when it first
runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

from django.core import checks
from django.utils.module_loading import import_string

TAG = "idempotency"

_OURS, _CONTRIB, _STORES = (
    f"django_idempotency.{folder}." for folder in ("checks", "contrib", "stores")
)
_URLS = (checks.Tags.urls,)
#: Checks → the tags beside ours. One of an optional app finds nothing if its folder is absent.
CHECKS: dict[str, tuple[str, ...]] = {
    f"{_OURS}settings.check_settings": (),
    f"{_OURS}settings.check_scope": (),
    f"{_OURS}databases.check_memory": (),
    f"{_OURS}middleware.check_middleware": (),
    f"{_OURS}databases.check_databases": (),
    f"{_OURS}policies.check_functions": (),
    f"{_OURS}routes.check_routes": _URLS,
    f"{_CONTRIB}tenants.checks.check_tenants": (),
    f"{_OURS}routed.check_routed": _URLS,
}
#: Checks of `--deploy`, which read the environment and query the servers.
DEPLOYED = (
    f"{_OURS}settings.check_environment",
    f"{_CONTRIB}tenants.checks.check_hosts",
    f"{_OURS}servers.check_servers",
)


def register() -> None:
    """Register the checks with Django."""
    for path, tags in CHECKS.items():
        checks.register(named(path), TAG, *tags)
    for path in DEPLOYED:
        checks.register(named(path), TAG, checks.Tags.security, deploy=True)


@cache  # Django registers a check once, however often an app becomes ready
def named(path: str) -> Callable[..., Any]:
    """Return a check by its dotted path.

    One of an optional app or a store finds nothing if its folder is absent.
    """

    def check(**kwargs: Any) -> Any:
        if path.startswith((_CONTRIB, _STORES)) and not is_there(path.rpartition(".")[0]):
            return []
        return import_string(path)(**kwargs)

    return check


def is_there(module: str) -> bool:
    """Can a module be imported? Imports only the packages around it."""
    try:
        return find_spec(module) is not None
    except ImportError:  # of a folder that is not there
        return False
