"""A project with the same view under each package, as its documentation sets it up."""

from __future__ import annotations

import os

SECRET_KEY = "the same view"
ALLOWED_HOSTS = ["testserver"]
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "rest_framework",
    "drf_idempotency",
    "drf_idempotencykey",
    "rest_framework_idempotency_key",
    "django_idempotency",
    "tests.proofs.peers.shop",
]
#: The middleware of the package under test stands below these.
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        # A worker that is to die finds the cases' database.
        "NAME": os.environ.get("PEERS_DATABASE")
        or "idempotency_peers" + os.environ.get("TEST_DATABASE_SUFFIX", ""),
        "HOST": os.environ.get("POSTGRESQL_HOST", "127.0.0.1"),
        "PORT": os.environ.get("POSTGRESQL_PORT", "5432"),
        "USER": os.environ.get("POSTGRESQL_USER", "postgres"),
        "PASSWORD": os.environ.get("POSTGRESQL_PASSWORD", ""),
        "OPTIONS": {"connect_timeout": 5},
    }
}
ROOT_URLCONF = "tests.proofs.peers.shop.urls"
SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
REDIS_URL = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/9")
LOGGING = {"version": 1, "disable_existing_loggers": True}

#: Seconds after which a package gives up on an owner that it believes dead, where it has such a
#: setting: as short as all allow, so that a case need not wait for half a minute.
LOCK = 1
IDEMPOTENCY_KEY_LOCK_TIMEOUT = LOCK
