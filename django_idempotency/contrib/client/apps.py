"""The app."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class ClientConfig(AppConfig):
    """Calls to providers. Optional: installed beside `django_idempotency`, it adds a table and a command."""

    name = "django_idempotency.contrib.client"
    label = "idempotency_client"
    verbose_name = _("Idempotency: outgoing calls")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Let an operation that gives up close the calls of its steps."""
        from ...runtime.current_step import CLOSERS
        from .ledger import give_up

        if give_up not in CLOSERS:
            CLOSERS.append(give_up)
