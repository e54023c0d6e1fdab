"""The app."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils.translation import gettext_lazy as _

from .. import optional_app

if TYPE_CHECKING:
    from ...management.parts import Part


class StepsConfig(optional_app.OptionalApp):
    """Steps. It adds a table and a command."""

    name = "django_idempotency.contrib.steps"
    label = "idempotency_steps"
    verbose_name = _("Idempotency: steps")
    extends = "housekeeping.StepsOfRecords"
    check = "checks.check_steps"

    def command_parts(self) -> list[Part]:
        """Return what it adds to `idempotency_resume`."""
        from ...management.parts import Part  # not above: a server needs no command
        from .command import Operations

        return [
            Part(command="idempotency_resume", name="operations", work=Operations),
        ]
