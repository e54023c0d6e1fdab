"""The app."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils.translation import gettext_lazy as _

from ...runtime.current_step import CLOSERS
from .. import optional_app

if TYPE_CHECKING:
    from ...management.parts import Part


class ClientConfig(optional_app.OptionalApp):
    """Calls to providers. It adds a table and a command."""

    name = "django_idempotency.contrib.client"
    label = "idempotency_client"
    verbose_name = _("Idempotency: outgoing calls")
    extends = "housekeeping.OutgoingCalls"
    check = "checks.check_client"

    def ready(self) -> None:
        """Register the check, and let an operation that gives up close the calls of its steps."""
        super().ready()
        from .ledger import give_up  # not above: loads the model

        if give_up not in CLOSERS:
            CLOSERS.append(give_up)

    def command_parts(self) -> list[Part]:
        """Return what it adds to `idempotency_resume`."""
        from ...management.parts import Part  # not above: a server needs no command
        from .command import Calls

        return [
            Part(command="idempotency_resume", name="calls", work=Calls),
        ]
