"""The app."""

from __future__ import annotations

from .. import optional_app


class TenantsConfig(optional_app.OptionalApp):
    """Ready-made realms, which work without a line in INSTALLED_APPS; so do the checks."""

    name = "django_idempotency.contrib.tenants"
    label = "idempotency_tenants"
    advice = ("checks.check_tenants",)
    deployed_advice = ("checks.check_hosts",)
