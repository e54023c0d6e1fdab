"""The app."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.translation import gettext_lazy as _

from ... import conf
from ...instrumentation.trail import trail
from .. import optional_app

if TYPE_CHECKING:
    from ...management.parts import Part


class AuditConfig(optional_app.OptionalApp):
    """The audit trail, switched on by AUDIT. It adds two tables and a command."""

    name = "django_idempotency.contrib.audit"
    label = "idempotency_audit"
    verbose_name = _("Idempotency: audit")
    extends = "housekeeping.AuditTrail"
    check = "checks.check_audit"

    def ready(self) -> None:
        super().ready()
        attach()
        setting_changed.connect(attach)  # in tests

    def command_parts(self) -> list[Part]:
        """Return what it adds to `idempotency_record`."""
        from ...management.parts import Part  # not above: a server needs no command
        from .command import History

        return [
            Part(command="idempotency_record", name="history", work=History),
            Part(command="idempotency_record", name="reference", work=History),
        ]


def attach(*, setting: str = conf.NAME, **_: Any) -> None:
    """Attach the trail if AUDIT is set, and detach it otherwise."""
    if setting != conf.NAME:
        return
    trail.active = None
    with suppress(ImproperlyConfigured):  # an error of `manage.py check`
        if conf.get("AUDIT") is True:
            from .writing import DatabaseTrail  # not above: loads the models

            trail.active = DatabaseTrail()
