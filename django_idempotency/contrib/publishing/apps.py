"""The app."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:
    from ...management.parts import Part


class PublishingConfig(AppConfig):
    """The page of policies, and the command that prints it. Optional."""

    name = "django_idempotency.contrib.publishing"
    label = "idempotency_publishing"
    verbose_name = _("Idempotency: published policies")

    def command_parts(self) -> list[Part]:
        """Return what it adds to `idempotency_routes`."""
        from ...management.parts import Part  # not above: a server needs no command
        from .command import Policies

        return [
            Part(command="idempotency_routes", name="policy", work=Policies),
        ]
