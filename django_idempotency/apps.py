"""The app."""

from django.apps import AppConfig
from django.db import connections
from django.utils.translation import gettext_lazy as _

from .checks import register
from .engine import notifying
from .instrumentation.meters import meters


class IdempotencyConfig(AppConfig):
    """Registers the system checks, and closes the connections of our own threads."""

    name = "django_idempotency"
    verbose_name = _("Idempotency")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        register()
        meters.install()
        notifying.closing = connections.close_all
