"""The app."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, ClassVar

from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.translation import gettext_lazy as _

from ...api import DURATION, Setting, is_duration
from ...conf import NAME, project_settings
from ...core.policy import is_flag
from ...instrumentation.trail import trail
from .. import optional_app


class AuditConfig(optional_app.OptionalApp):
    """The audit trail, switched on by AUDIT. It adds two tables and a command."""

    name = "django_idempotency.contrib.audit"
    label = "idempotency_audit"
    verbose_name = _("Idempotency: audit")
    idempotency_settings: ClassVar = {
        # Is every event of a key written?
        "AUDIT": Setting(False, is_flag, "True or False"),
        # How long it is kept, in seconds or as a timedelta; None: without end.
        "AUDIT_RETENTION": Setting(
            365 * 86400,
            lambda value: value is None or is_duration(value),
            f"None, or {DURATION}",
        ),
    }
    command_parts: ClassVar = {
        "idempotency_record history": "command.History",
        "idempotency_record reference": "command.History",
    }
    extends = "housekeeping.AuditTrail"
    idempotency_checks: ClassVar = {"checks.check_audit": ()}

    def ready(self) -> None:
        attach()
        setting_changed.connect(attach)  # in tests


def attach(*, setting: str = NAME, **_: Any) -> None:
    """Attach the trail if AUDIT is set, and detach it otherwise."""
    if setting != NAME:
        return
    trail.active = None
    with suppress(ImproperlyConfigured):  # an error of `manage.py check`
        if project_settings().get("AUDIT") is True:
            from .writing import DatabaseTrail  # not above: loads the models

            trail.active = DatabaseTrail()
