"""The app."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class MonitoringConfig(AppConfig):
    """The command that prints alert rules and a dashboard. Optional."""

    name = "django_idempotency.contrib.monitoring"
    label = "idempotency_monitoring"
    verbose_name = _("Idempotency: monitoring")
