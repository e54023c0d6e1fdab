"""The app."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class OutboxConfig(AppConfig):
    """The outbox. Install it beside `django_idempotency`; who does not gets no table and no command."""

    name = "django_idempotency.outbox"
    label = "idempotency_outbox"
    verbose_name = _("Idempotency: outbox")
    default_auto_field = "django.db.models.BigAutoField"
