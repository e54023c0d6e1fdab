"""Django's own secret, read live."""

from __future__ import annotations

from typing import Any

from django.conf import settings


def secret_key() -> Any:
    """Return SECRET_KEY, text or bytes. Raises `ImproperlyConfigured` for an empty one, as Django does."""
    # What LazySettings remembers, once it was asked: its own __getattribute__ takes ten times as long.
    return object.__getattribute__(settings, "__dict__").get("SECRET_KEY") or settings.SECRET_KEY
