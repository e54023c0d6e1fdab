"""Checks that tenants do not share keys, and that the ready-made REALM and SCOPE can work. Nothing here connects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage

from .. import conf, realms, scopes
from ..errors import ConfigurationError
from .catalogue import finding, shown
from .settings import check_settings

#: Apps that give each tenant a schema.
SCHEMA_PER_TENANT = ("django_tenants", "tenant_schemas")
_OURS = "django_idempotency"
_SESSIONS = "django.contrib.sessions.middleware.SessionMiddleware"
_COOKIES = "django.contrib.sessions.backends.signed_cookies"
_KEPT_SESSIONS = 'SESSION_ENGINE = "django.contrib.sessions.backends.db"'


def check_tenants(**_: Any) -> list[CheckMessage]:
    """Check REALM, SCOPE and where the table is, once the settings are in order."""
    return [] if check_settings() else [*_schemas(), *_shared_apps(), *_ready_realm(), *_ready_scope()]


def check_hosts(**_: Any) -> list[CheckMessage]:
    """Check that a wildcard domain has a realm; for --deploy. Not "*": it is common behind proxies."""
    if check_settings() or conf.get("REALM") is not None or any(map(apps.is_installed, SCHEMA_PER_TENANT)):
        return []
    domains = [domain for domain in settings.ALLOWED_HOSTS if domain.startswith(".")]
    return [finding("W068", found=f'ALLOWED_HOSTS has "{domain}"', realm="host") for domain in domains[:1]]


def kept_in_tenants() -> bool:
    """Is our table in each tenant's schema, and not in the shared one?"""
    shared, tenants = getattr(settings, "SHARED_APPS", None), getattr(settings, "TENANT_APPS", None)
    if not apps.is_installed("django_tenants") or shared is None or tenants is None:
        return False
    return _names_us(tenants) and not _names_us(shared)


def _names_us(installed: Any) -> bool:
    return any(name == _OURS or name.startswith(f"{_OURS}.apps.") for name in installed)


def _schemas() -> Iterator[CheckMessage]:
    for app in SCHEMA_PER_TENANT:
        if apps.is_installed(app) and conf.get("REALM") is None:
            yield finding("W068", found=f'INSTALLED_APPS has "{app}"', realm="schema")


def _shared_apps() -> Iterator[CheckMessage]:
    if kept_in_tenants():
        yield finding("W069")


def _ready_realm() -> Iterator[CheckMessage]:
    if conf.imported("REALM") is realms.schema:
        try:
            realms.schema(None)
        except ConfigurationError as error:
            yield finding("E063", problem=str(error).partition(":")[0], alias=realms.tenants_alias())


def _ready_scope() -> Iterator[CheckMessage]:
    if conf.imported("SCOPE") is not scopes.session:
        return
    if settings.SESSION_ENGINE == _COOKIES:
        yield finding("E064", problem=f"SESSION_ENGINE is {shown(_COOKIES)}, whose keys change", fix=_KEPT_SESSIONS)
    elif not any(path.endswith("SessionMiddleware") for path in settings.MIDDLEWARE):  # the project's own, too
        yield finding("E064", problem="MIDDLEWARE has no SessionMiddleware", fix=f'"{_SESSIONS}" in MIDDLEWARE')
