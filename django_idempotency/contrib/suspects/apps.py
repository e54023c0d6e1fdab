"""The app."""

from django.apps import AppConfig
from django.core import checks
from django.utils.translation import gettext_lazy as _

from ...checks import TAG, named


class SuspectsConfig(AppConfig):
    """A page of the admin and a command. Optional: installed beside `django_idempotency`."""

    name = "django_idempotency.contrib.suspects"
    label = "idempotency_suspects"
    verbose_name = _("Idempotency: suspects")

    def ready(self) -> None:
        checks.register(named("django_idempotency.contrib.suspects.checks.check_suspects"), TAG)
