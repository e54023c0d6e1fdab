"""The app."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class StepsConfig(AppConfig):
    """Steps. Optional: installed beside `django_idempotency`, it adds a table and a command."""

    name = "django_idempotency.contrib.steps"
    label = "idempotency_steps"
    verbose_name = _("Idempotency: steps")
    default_auto_field = "django.db.models.BigAutoField"
