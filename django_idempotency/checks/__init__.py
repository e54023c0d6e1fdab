"""System checks: common mistakes, and what to type instead. `manage.py check --tag idempotency` runs only these.

A server runs none of them. So each is registered by its dotted path, and imported when it first runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from django.core import checks
from django.utils.module_loading import import_string

TAG = "idempotency"

#: Checks of the core → the tags beside ours.
CHECKS: dict[str, tuple[str, ...]] = {
    "django_idempotency.checks.settings.check_settings": (),
    "django_idempotency.checks.databases.check_memory": (),
    "django_idempotency.checks.middleware.check_middleware": (),
    "django_idempotency.checks.databases.check_databases": (),
    "django_idempotency.checks.policies.check_functions": (),
    "django_idempotency.checks.databases.check_tenants": (),
    "django_idempotency.checks.routes.check_routes": (checks.Tags.urls,),
    "django_idempotency.checks.surprises.check_replays": (checks.Tags.urls,),
    "django_idempotency.checks.surprises.check_exceptions": (checks.Tags.urls,),
    "django_idempotency.checks.surprises.check_secrets": (checks.Tags.urls,),
}
#: Checks of integrations that are not apps. A check finds nothing if its folder is absent.
INTEGRATIONS: dict[str, tuple[str, ...]] = {
    "django_idempotency.contrib.by_route.checks.check_routed": (checks.Tags.urls,),
    "django_idempotency.contrib.cors.checks.check_cors": (),
    "django_idempotency.contrib.issued_keys.checks.check_issuing": (checks.Tags.urls,),
    "django_idempotency.contrib.ninja.checks.check_operations": (checks.Tags.urls,),
}
#: Checks of `--deploy`, which read the environment and query the servers.
DEPLOYED = (
    "django_idempotency.checks.settings.check_environment",
    "django_idempotency.checks.servers.check_deployment",
    "django_idempotency.checks.servers.check_hosts",
    "django_idempotency.checks.servers.check_servers",
)
#: With our tag, too, Django 6.1 would always connect for it.
MIGRATIONS = "django_idempotency.checks.databases.check_migrations"


def register() -> None:
    """Register the checks with Django."""
    for path, tags in (CHECKS | INTEGRATIONS).items():
        checks.register(named(path), TAG, *tags)
    checks.register(named(MIGRATIONS), checks.Tags.database)
    for path in DEPLOYED:
        checks.register(named(path), TAG, checks.Tags.security, deploy=True)


@cache  # Django registers a check once, however often an app becomes ready
def named(path: str) -> Callable[..., Any]:
    """Return a check by its dotted path."""

    def check(**kwargs: Any) -> Any:
        if path in INTEGRATIONS:
            from ..http.kinds import is_there  # not above: a server needs no check

            if not is_there(path.rpartition(".")[0]):
                return []
        return import_string(path)(**kwargs)

    return check
