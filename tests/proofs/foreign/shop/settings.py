"""The settings of the shop: PostgreSQL, ATOMIC_REQUESTS, CSRF, sessions."""

from __future__ import annotations

import os

from oscar import INSTALLED_APPS as OSCAR_APPS
from oscar.defaults import *  # noqa: F403

SECRET_KEY = "a shop of tests"
ALLOWED_HOSTS = ["127.0.0.1"]
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "test_idempotency_shop" + os.environ.get("TEST_DATABASE_SUFFIX", ""),
        "HOST": os.environ.get("POSTGRESQL_HOST", "127.0.0.1"),
        "PORT": os.environ.get("POSTGRESQL_PORT", "5432"),
        "USER": os.environ.get("POSTGRESQL_USER", "postgres"),
        "PASSWORD": os.environ.get("POSTGRESQL_PASSWORD", ""),
        "OPTIONS": {"connect_timeout": 5},
        "ATOMIC_REQUESTS": True,
        "CONN_MAX_AGE": 60,
    }
}
INSTALLED_APPS = [*OSCAR_APPS, "sorl.thumbnail", "django_idempotency", "shop.till"]
SITE_ID = 1
USE_TZ = True
ROOT_URLCONF = "shop.urls"
STATIC_URL = "/static/"
AUTHENTICATION_BACKENDS = ["oscar.apps.customer.auth_backends.EmailBackend"]
HAYSTACK_CONNECTIONS = {"default": {"ENGINE": "haystack.backends.simple_backend.SimpleEngine"}}
EMAIL_BACKEND = "django.core.mail.backends.dummy.EmailBackend"
OSCAR_DEFAULT_CURRENCY = "EUR"
OSCAR_THUMBNAILER = "oscar.core.thumbnails.SorlThumbnail"
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "oscar.apps.basket.middleware.BasketMiddleware",
    "django.contrib.flatpages.middleware.FlatpageFallbackMiddleware",
    "django_idempotency.middleware.IdempotencyMiddleware",
]
# oscar's checkout has its own dispatch(), which cannot be repeated before a replay: the shop
# decides itself.
IDEMPOTENCY = {"AUTHORIZE_REPLAY": "shop.till.customers_only"}
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "oscar.apps.search.context_processors.search_form",
                "oscar.apps.checkout.context_processors.checkout",
                "oscar.apps.communication.notifications.context_processors.notifications",
                "oscar.core.context_processors.metadata",
            ]
        },
    }
]
LOGGING = {
    "version": 1,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "root": {"handlers": ["console"]},
}
