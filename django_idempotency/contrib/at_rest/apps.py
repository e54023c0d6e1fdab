"""The app."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:
    from ...management.parts import Part


class AtRestConfig(AppConfig):
    """The commands that seal again and erase. Optional: records are sealed and hashed without."""

    name = "django_idempotency.contrib.at_rest"
    label = "idempotency_at_rest"
    verbose_name = _("Idempotency: at rest")

    def command_parts(self) -> list[Part]:
        """Return what it adds to `idempotency_stores`."""
        from ...management.parts import Part  # not above: a server needs no command
        from .command import Reseal

        return [
            Part(command="idempotency_stores", name="reseal", work=Reseal),
        ]
