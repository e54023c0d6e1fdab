"""The app."""

from __future__ import annotations

from typing import ClassVar

from django.core import checks

from .. import optional_app


class NinjaConfig(optional_app.OptionalApp):
    """Operations of django-ninja. It adds no table."""

    name = "django_idempotency.contrib.ninja"
    label = "idempotency_ninja"
    verbose_name = "Idempotency: django-ninja"
    extends = "kind.Ninja"
    idempotency_checks: ClassVar = {"checks.check_operations": (checks.Tags.urls,)}
