"""System checks: common mistakes, and what to type instead. `manage.py check --tag idempotency` runs only these."""

from __future__ import annotations

from django.core import checks
from django.utils.module_loading import import_string

from ..http.kinds import is_there
from .databases import check_databases, check_memory, check_migrations, check_tenants
from .functions import check_functions
from .middleware import check_middleware
from .routes import check_routes
from .servers import check_deployment, check_hosts, check_servers
from .settings import check_environment, check_settings
from .surprises import check_exceptions, check_issuing, check_replays, check_secrets

TAG = "idempotency"

#: Checks of integrations that are not apps → the tags beside ours. A check is absent if its folder is.
INTEGRATIONS: dict[str, tuple[str, ...]] = {
    "django_idempotency.contrib.cors.checks.check_cors": (),
    "django_idempotency.contrib.ninja.checks.check_operations": (checks.Tags.urls,),
}


def register() -> None:
    """Register the checks with Django. Those of `--deploy` read the environment and query the servers."""
    for check in (check_settings, check_memory, check_middleware, check_databases, check_functions, check_tenants):
        checks.register(check, TAG)
    for check in (check_routes, check_replays, check_exceptions, check_issuing, check_secrets):
        checks.register(check, TAG, checks.Tags.urls)
    for path, tags in INTEGRATIONS.items():
        if is_there(path.rpartition(".")[0]):
            checks.register(import_string(path), TAG, *tags)
    checks.register(check_migrations, checks.Tags.database)  # with our tag, too, Django 6.1 would always connect for it
    for check in (check_environment, check_deployment, check_hosts, check_servers):
        checks.register(check, TAG, checks.Tags.security, deploy=True)
