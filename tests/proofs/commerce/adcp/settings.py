"""A project that is a seller of advertising by AdCP 3."""

from __future__ import annotations

from ...environments import database

SECRET_KEY = "a seller"
ALLOWED_HOSTS = ["127.0.0.1"]
INSTALLED_APPS = ["django_idempotency", "tests.proofs.commerce.adcp"]
DATABASES = {"default": database()}
ROOT_URLCONF = "tests.proofs.commerce.adcp.seller"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
