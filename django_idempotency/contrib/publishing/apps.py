"""The app."""

from __future__ import annotations

from typing import ClassVar

from django.utils.translation import gettext_lazy as _

from .. import optional_app


class PublishingConfig(optional_app.OptionalApp):
    """The page of policies, and the command that prints it. Optional."""

    name = "django_idempotency.contrib.publishing"
    label = "idempotency_publishing"
    verbose_name = _("Idempotency: published policies")
    command_parts: ClassVar = {"idempotency_routes policy": "command.Policies"}
