"""The app."""

from django.utils.translation import gettext_lazy as _

from .. import wing


class StepsConfig(wing.WingConfig):
    """Steps. It adds a table and a command."""

    name = "django_idempotency.contrib.steps"
    label = "idempotency_steps"
    verbose_name = _("Idempotency: steps")
    extends = "housekeeping.StepsOfRecords"
    check = "checks.check_steps"
