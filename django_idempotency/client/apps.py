"""The app."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class ClientConfig(AppConfig):
    """Calls to providers. Optional: installed beside `django_idempotency`, it adds a table and a command."""

    name = "django_idempotency.client"
    label = "idempotency_client"
    verbose_name = _("Idempotency: outgoing calls")
    default_auto_field = "django.db.models.BigAutoField"
