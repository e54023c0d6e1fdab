"""A project with a guarded view for each of the APIs whose clients are tested."""

from __future__ import annotations

import os

SECRET_KEY = "official clients"
ALLOWED_HOSTS = ["127.0.0.1"]
INSTALLED_APPS = ["django_idempotency", "tests.proofs.clients.api"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("CLIENTS_DATABASE", ":memory:"),
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "init_command": "PRAGMA journal_mode=WAL", "timeout": 20},
    }
}
ROOT_URLCONF = "tests.proofs.clients.api.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
