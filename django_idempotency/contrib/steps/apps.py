"""The app."""

from __future__ import annotations

from typing import ClassVar

from django.utils.translation import gettext_lazy as _

from .. import optional_app


class StepsConfig(optional_app.OptionalApp):
    """Steps. It adds a table and a command."""

    name = "django_idempotency.contrib.steps"
    label = "idempotency_steps"
    verbose_name = _("Idempotency: steps")
    command_parts: ClassVar = {
        "idempotency_record execution": "executions.OfExecution",
        "idempotency_resume operations": "command.Operations",
    }
    extends = "housekeeping.StepsOfRecords"
    idempotency_checks: ClassVar = {"checks.check_steps": ()}
    adds = ("step", "astep", "undo_steps", "aundo_steps")
