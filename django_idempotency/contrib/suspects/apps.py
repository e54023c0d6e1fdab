"""The app."""

from typing import ClassVar

from django.utils.translation import gettext_lazy as _

from ...api import Setting
from .. import optional_app


class SuspectsConfig(optional_app.OptionalApp):
    """A page of the admin and a command."""

    name = "django_idempotency.contrib.suspects"
    label = "idempotency_suspects"
    verbose_name = _("Idempotency: suspects")
    idempotency_settings: ClassVar = {
        # Where the admin looks: a list of {"model": "payments.Charge", "same": ["card", "amount"],
        # "within": 300}.
        "SUSPECTS": Setting([])
    }
    idempotency_checks: ClassVar = {"searching.check_suspects": ()}
