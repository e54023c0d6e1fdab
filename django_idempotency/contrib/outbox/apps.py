"""The app."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class OutboxConfig(AppConfig):
    """The outbox. Optional: installed beside `django_idempotency`, it adds a table and a command."""

    name = "django_idempotency.contrib.outbox"
    label = "idempotency_outbox"
    verbose_name = _("Idempotency: outbox")
    default_auto_field = "django.db.models.BigAutoField"
