"""The app."""

from __future__ import annotations

from .. import optional_app


class ModernRestConfig(optional_app.OptionalApp):
    """Endpoints of django-modern-rest. It adds no table."""

    name = "django_idempotency.contrib.modern_rest"
    label = "idempotency_modern_rest"
    verbose_name = "Idempotency: django-modern-rest"
    extends = "kind.ModernRest"
