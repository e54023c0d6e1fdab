"""allauth, headless: for a browser with cookies, and for an app with session tokens."""

from __future__ import annotations

from testproject.settings import *  # noqa: F403 - these settings, but for a few
from testproject.settings import INSTALLED_APPS, MIDDLEWARE

INSTALLED_APPS = [*INSTALLED_APPS, "allauth", "allauth.account", "allauth.headless"]
INSTALLED_APPS += ["django_idempotency.contrib.allauth"]
# Our middleware stays last.
MIDDLEWARE = [*MIDDLEWARE[:-1], "allauth.account.middleware.AccountMiddleware", MIDDLEWARE[-1]]
AUTHENTICATION_BACKENDS = ["allauth.account.auth_backends.AuthenticationBackend"]
ROOT_URLCONF = "tests.proofs.neighbours.allauth.urls"
HEADLESS_ONLY = True
HEADLESS_FRONTEND_URLS = {
    "account_confirm_email": "https://shop.example/confirm/{key}",
    "account_reset_password_from_key": "https://shop.example/reset/{key}",
    "account_signup": "https://shop.example/signup",
}
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_RATE_LIMITS = False
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
