"""dj-stripe, with its own view and with a guarded one."""

from __future__ import annotations

from testproject.settings import *  # noqa: F403 - these settings, but for a few
from testproject.settings import MIDDLEWARE

# Without the admin: dj-stripe's warns on Django 5.2.
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django.contrib.sessions",
    "django_idempotency",
    "django_idempotency.contrib.business_key",  # the testproject has rows with a key
    "testproject.payments",
    "djstripe",
]
MIDDLEWARE = [path for path in MIDDLEWARE if "messages" not in path]
LOGIN_URL = "/login/"
MIGRATION_MODULES = {"djstripe": None}  # a hundred tables, made at once
ROOT_URLCONF = "tests.proofs.neighbours.djstripe.urls"
DJSTRIPE_FOREIGN_KEY_TO_FIELD = "id"
STRIPE_LIVE_MODE = False
STRIPE_TEST_SECRET_KEY = "sk_test_123"
DJSTRIPE_WEBHOOK_EVENT_CALLBACK = "tests.proofs.neighbours.djstripe.urls.carry_out"
