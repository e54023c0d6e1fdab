"""System checks: common mistakes, and what to type instead.

`manage.py check --tag idempotency` runs only these.

A server runs none of them. So each is registered by its dotted path, and imported when it first
runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from django.apps import apps
from django.core import checks
from django.utils.module_loading import import_string

TAG = "idempotency"

_URLS = (checks.Tags.urls,)
#: Checks, by their paths in this folder → the tags beside TAG.
CHECKS: dict[str, tuple[str, ...]] = {
    "settings.check_settings": (),
    "settings.check_scope": (),
    "databases.check_memory": (),
    "middleware.check_middleware": (),
    "databases.check_databases": (),
    "policies.check_functions": (),
    "routes.check_routes": _URLS,
    "settings.check_left_out": (),
    "routed.check_routed": _URLS,
}
#: Checks of `--deploy`, which read the environment and query the servers.
DEPLOYED = (
    "settings.check_environment",
    "settings.check_left_out_deployed",
    "servers.check_servers",
)


def register() -> None:
    """Register the checks with Django: ours, and those that the configs of other apps name in
    `idempotency_checks`.
    """
    found = {__name__: CHECKS}
    for app in apps.get_app_configs():
        found[app.name] = getattr(app, "idempotency_checks", {})
    for folder, paths in found.items():
        for path, tags in paths.items():
            checks.register(named(f"{folder}.{path}"), TAG, *tags)
    for path in DEPLOYED:
        checks.register(named(f"{__name__}.{path}"), TAG, checks.Tags.security, deploy=True)


@cache  # Django registers a check once, however often an app becomes ready
def named(path: str) -> Callable[..., Any]:
    """Return a check by its dotted path: it is imported when it runs."""

    def check(**kwargs: Any) -> Any:
        return import_string(path)(**kwargs)

    return check
