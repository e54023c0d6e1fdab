"""The app."""

from django.utils.translation import gettext_lazy as _

from .. import optional_app


class OutboxConfig(optional_app.OptionalApp):
    """The outbox. It adds a table and a command."""

    name = "django_idempotency.contrib.outbox"
    label = "idempotency_outbox"
    verbose_name = _("Idempotency: outbox")
    extends = "housekeeping.WaitingMessages"
    check = "checks.check_outbox"
