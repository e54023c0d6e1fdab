"""A database per tenant, one store of records in the default one, and a replica of that."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from testproject.settings import *  # noqa: F403 - these settings, but for a few
from testproject.settings import DATABASES, MIDDLEWARE, sqlite
from testproject.settings import TEST_NAME as NAME
from tests.support.services import REDIS

HERE = "tests.proofs.neighbours.tenant_databases.settings"
TENANT: ContextVar[str | None] = ContextVar("tenant", default=None)


class TenantRouter:
    """Reads and writes go to the tenant's database, except for the records."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return None if model._meta.app_label == "django_idempotency" else TENANT.get()

    db_for_write = db_for_read


def tenants(get_response: Any) -> Any:
    def respond(request: Any) -> Any:
        token = TENANT.set(request.get_host().partition(".")[0])
        try:
            return get_response(request)
        finally:
            TENANT.reset(token)

    return respond


def of_router(request: Any) -> str | None:
    """The REALM of the how-to."""
    return TENANT.get()


DATABASES = {
    "default": DATABASES["default"],
    **{
        alias: {**sqlite(), "NAME": f"{alias}.sqlite3", "TEST": {"NAME": f"{NAME}_{alias}.sqlite3"}}
        for alias in ("tenant-a", "tenant-b")
    },
    "replica": {**DATABASES["default"], "TEST": {"MIRROR": "default"}},
}
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django_idempotency",
    "django_idempotency.contrib.business_key",  # the testproject has rows with a key
    "testproject.payments",
]
DATABASE_ROUTERS = [f"{HERE}.TenantRouter"]
MIDDLEWARE = [f"{HERE}.tenants", *(path for path in MIDDLEWARE if "messages" not in path)]
ROOT_URLCONF = "tests.proofs.neighbours.tenants"
ALLOWED_HOSTS = [".localhost"]
SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
CACHES = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": REDIS}}
