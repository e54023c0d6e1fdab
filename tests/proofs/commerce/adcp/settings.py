"""A project that is a seller of advertising by AdCP 3."""

from __future__ import annotations

import os

SECRET_KEY = "a seller"
ALLOWED_HOSTS = ["127.0.0.1"]
INSTALLED_APPS = ["django_idempotency", "tests.proofs.commerce.adcp"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("ADCP_DATABASE", ":memory:"),
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "init_command": "PRAGMA journal_mode=WAL", "timeout": 20},
    }
}
ROOT_URLCONF = "tests.proofs.commerce.adcp.seller"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
