"""The app."""

from typing import Any

from django.apps import AppConfig
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.translation import gettext_lazy as _

from ... import conf
from ...instrumentation.trail import trail


class AuditConfig(AppConfig):
    """The audit trail. Optional: installed beside `django_idempotency`, and switched on by AUDIT."""

    name = "django_idempotency.contrib.audit"
    label = "idempotency_audit"
    verbose_name = _("Idempotency: audit")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        attach()
        setting_changed.connect(_reattach)


def attach() -> None:
    """Attach the trail if AUDIT is set, and detach it otherwise."""
    from .writing import DatabaseTrail  # not above: loads the models

    try:
        wanted = conf.get("AUDIT") is True
    except ImproperlyConfigured:  # an error of `manage.py check`
        wanted = False
    trail.active = DatabaseTrail() if wanted else None


def _reattach(*, setting: str, **_: Any) -> None:
    """Follow a change of settings (tests)."""
    if setting == conf.NAME:
        attach()
