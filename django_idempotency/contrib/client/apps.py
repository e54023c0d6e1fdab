"""The app."""

from __future__ import annotations

from typing import ClassVar

from django.utils.translation import gettext_lazy as _

from ...api import Setting
from ...runtime.current_step import CLOSERS
from .. import optional_app


class ClientConfig(optional_app.OptionalApp):
    """Calls to providers. It adds a table and a command."""

    name = "django_idempotency.contrib.client"
    label = "idempotency_client"
    verbose_name = _("Idempotency: outgoing calls")
    idempotency_settings: ClassVar = {
        # Whom a project calls: alias → {"LIFETIME": timedelta, "HEADER", "CLIENT": dotted path,
        # "RETENTION", "MAX_BODY"}.
        "PROVIDERS": Setting({})
    }
    command_parts: ClassVar = {"idempotency_resume calls": "command.Calls"}
    extends = "housekeeping.OutgoingCalls"
    idempotency_checks: ClassVar = {"checks.check_client": ()}

    def ready(self) -> None:
        """Let an operation that gives up close the calls of its steps."""
        from .ledger import give_up  # not above: loads the model

        if give_up not in CLOSERS:
            CLOSERS.append(give_up)
