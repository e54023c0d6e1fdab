"""The flower shop that the suite expects, with its views under the profile of the protocol."""

from __future__ import annotations

import os

SECRET_KEY = "flowers"
ALLOWED_HOSTS = ["127.0.0.1"]
INSTALLED_APPS = ["django_idempotency", "rest_framework", "tests.proofs.commerce.ucp.shop"]
MIDDLEWARE = ["tests.proofs.commerce.ucp.shop.stage.noted"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("COMMERCE_DATABASE", ":memory:"),
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "init_command": "PRAGMA journal_mode=WAL", "timeout": 20},
    },
    # A store that is down: the folder does not exist.
    "gone": {"ENGINE": "django.db.backends.sqlite3", "NAME": "/nowhere/db.sqlite3"},
}
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [],
    "DEFAULT_PERMISSION_CLASSES": [],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "UNAUTHENTICATED_USER": None,
}
ROOT_URLCONF = "tests.proofs.commerce.ucp.shop.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
