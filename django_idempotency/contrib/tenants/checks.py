"""Checks that tenants do not share keys, and that the ready-made REALM can tell them apart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage
from django.utils.module_loading import import_string

from ...api import Finding, setting
from ...errors import ConfigurationError
from . import schema, tenants_alias


class E063(Finding):
    """IDEMPOTENCY["REALM"] is "django_idempotency.contrib.tenants.schema", which cannot determine
    the tenant: %(problem)s.

    Type DATABASES["%(alias)s"]["ENGINE"] = "django_tenants.postgresql_backend", or "REALM": the
    dotted path of a function of your own.
    """


class W068(Finding):
    """%(found)s, and no realm is set: a tenant that sends the same key as another gets the other's
    response.

    Type "REALM": "django_idempotency.contrib.tenants.%(realm)s", or the dotted path of a function
    that names the tenant. If there is only one tenant, or all requests and calls run inside
    django_idempotency.realm(…), type %(silence)s.
    """


#: Apps that give each tenant a schema.
SCHEMA_PER_TENANT = ("django_tenants", "tenant_schemas")


def check_tenants(**_: Any) -> Iterator[CheckMessage]:
    """Check that tenants do not share keys, and that the ready-made REALM can work."""
    realm = setting("REALM")
    for app in SCHEMA_PER_TENANT:
        if apps.is_installed(app) and realm is None:
            yield W068(found=f'INSTALLED_APPS has "{app}"', realm="schema")
    if isinstance(realm, str):
        realm = import_string(realm)
    if realm is schema:
        try:
            schema(None)
        except ConfigurationError as error:
            yield E063(problem=str(error).partition(":")[0], alias=tenants_alias())


def check_hosts(**_: Any) -> Iterator[CheckMessage]:
    """Check that a wildcard domain has a realm. Not "*": it is common behind proxies."""
    if setting("REALM") is None and not any(map(apps.is_installed, SCHEMA_PER_TENANT)):
        for domain in [domain for domain in settings.ALLOWED_HOSTS if domain.startswith(".")][:1]:
            yield W068(found=f'ALLOWED_HOSTS has "{domain}"', realm="host")
