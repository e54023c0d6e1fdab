"""The app."""

from django.apps import AppConfig
from django.core import checks
from django.utils.translation import gettext_lazy as _


class SuspectsConfig(AppConfig):
    """A page of the admin and a command. Optional: installed beside `django_idempotency`."""

    name = "django_idempotency.contrib.suspects"
    label = "idempotency_suspects"
    verbose_name = _("Idempotency: suspects")

    def ready(self) -> None:
        from ...checks import TAG
        from .checks import check_suspects

        checks.register(check_suspects, TAG)
