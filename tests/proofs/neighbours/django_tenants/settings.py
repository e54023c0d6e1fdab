"""A schema per tenant, and one table of records in the public schema."""

from __future__ import annotations

from testproject.settings import *  # noqa: F403 - these settings, but for a few
from testproject.settings import MIDDLEWARE, TEST_NAME, postgresql
from tests.support.services import REDIS

DATABASES = {
    "default": {
        **postgresql(),
        "ENGINE": "django_tenants.postgresql_backend",
        "TEST": {"NAME": f"{TEST_NAME}_tenants"},
    }
}
DATABASE_ROUTERS = ["django_tenants.routers.TenantSyncRouter"]
TENANT_MODEL, TENANT_DOMAIN_MODEL = "shop_tenants.Tenant", "shop_tenants.Domain"
SHARED_APPS = [
    "django_tenants",
    "tests.proofs.neighbours.django_tenants",
    "django.contrib.contenttypes",
    "django_idempotency",
    "django_idempotency.contrib.outbox",
]
TENANT_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django_idempotency.contrib.business_key",  # the testproject has rows with a key
    "testproject.payments",
]
INSTALLED_APPS = [*SHARED_APPS, *(app for app in TENANT_APPS if app not in SHARED_APPS)]
MIDDLEWARE = [
    "django_tenants.middleware.main.TenantMainMiddleware",
    *(path for path in MIDDLEWARE if "messages" not in path),
]
ROOT_URLCONF = "tests.proofs.neighbours.tenants"
ALLOWED_HOSTS = [".localhost"]
SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
CACHES = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": REDIS}}
IDEMPOTENCY = {"REALM": "django_idempotency.contrib.tenants.schema"}
