"""The app."""

from typing import Any

from django.apps import AppConfig, apps
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
        if apps.is_installed("django.contrib.auth"):
            # Not above: a project may do without it.
            from django.contrib.auth.signals import (
                user_logged_in,
            )

            user_logged_in.connect(_logged_in, dispatch_uid="django_idempotency")


def _logged_in(request: Any = None, **_: Any) -> None:
    if getattr(request, "idempotency", None):
        from .http.logins import report_login  # not above: few views log in under a key

        report_login(request)
