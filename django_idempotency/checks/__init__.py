"""System checks: what people get wrong, and what to type instead. `manage.py check --tag idempotency` runs only these."""

from __future__ import annotations

from django.core import checks

from .databases import check_databases, check_deployment
from .middleware import check_middleware
from .routes import check_routes
from .settings import check_settings

TAG = "idempotency"


def register() -> None:
    """Add the checks to Django's. Those of `--deploy` ask the servers."""
    for check in (check_settings, check_middleware, check_databases):
        checks.register(check, TAG)
    checks.register(check_routes, TAG, checks.Tags.urls)
    checks.register(check_deployment, TAG, checks.Tags.security, deploy=True)
