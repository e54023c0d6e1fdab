"""Somebody forgets the app in INSTALLED_APPS: found before the first client with a key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from pytest_django import Settings
from rest_framework.views import APIView

from django_idempotency import idempotent
from django_idempotency.middleware import IdempotencyMiddleware
from django_idempotency.rest_framework import IdempotentViewMixin


@pytest.mark.parametrize(
    "use",
    [
        lambda: type("Charges", (IdempotentViewMixin, APIView), {}),
        lambda: idempotent()(print),
        lambda: idempotent(print),
        lambda: IdempotencyMiddleware(print),
    ],
    ids=["mixin", "decorator", "without parentheses", "middleware"],
)
def test_a_forgotten_app(use: Callable[[], Any], settings: Settings) -> None:
    """Importing the views, or starting the server, says what to type."""
    settings.INSTALLED_APPS = [
        app for app in settings.INSTALLED_APPS if not app.startswith("django_idempotency")
    ]
    with pytest.raises(ImproperlyConfigured, match="Add it, and type: python manage"):
        use()
