"""The app."""

from __future__ import annotations

from .. import optional_app


class AllauthConfig(optional_app.OptionalApp):
    """Views of django-allauth, which need no guard. It adds no table."""

    name = "django_idempotency.contrib.allauth"
    label = "idempotency_allauth"
    verbose_name = "Idempotency: allauth"
    extends = "kind.Allauth"
