"""A project with a guarded view for each of the APIs whose clients are tested."""

from __future__ import annotations

from ...environments import database

SECRET_KEY = "official clients"
ALLOWED_HOSTS = ["127.0.0.1"]
INSTALLED_APPS = ["django_idempotency", "tests.proofs.clients.api"]
DATABASES = {"default": database()}
ROOT_URLCONF = "tests.proofs.clients.api.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
