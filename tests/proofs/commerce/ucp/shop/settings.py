"""The flower shop that the suite expects, with its views under the profile of the protocol."""

from __future__ import annotations

from ....environments import database

SECRET_KEY = "flowers"
ALLOWED_HOSTS = ["127.0.0.1"]
INSTALLED_APPS = ["django_idempotency", "rest_framework", "tests.proofs.commerce.ucp.shop"]
MIDDLEWARE = ["tests.proofs.commerce.ucp.shop.stage.noted"]
DATABASES = {
    "default": database(),
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
