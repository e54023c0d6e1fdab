"""The app."""

from typing import ClassVar

from django.utils.translation import gettext_lazy as _

from ...api import Setting
from .. import optional_app


class OutboxConfig(optional_app.OptionalApp):
    """The outbox. It adds a table and a command."""

    name = "django_idempotency.contrib.outbox"
    label = "idempotency_outbox"
    verbose_name = _("Idempotency: outbox")
    idempotency_settings: ClassVar = {
        # What publishes: the dotted path of a function publish(message), or of a class with it.
        "OUTBOX_PUBLISHER": Setting(None)
    }
    extends = "housekeeping.WaitingMessages"
    idempotency_checks: ClassVar = {"checks.check_outbox": ()}
