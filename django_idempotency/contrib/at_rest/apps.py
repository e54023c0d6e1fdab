"""The app."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class AtRestConfig(AppConfig):
    """The command that seals again. Optional: records are sealed and hashed without the app."""

    name = "django_idempotency.contrib.at_rest"
    label = "idempotency_at_rest"
    verbose_name = _("Idempotency: at rest")
