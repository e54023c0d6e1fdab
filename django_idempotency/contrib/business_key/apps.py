"""The app."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

from ...api import AppExtension, OperationHandle


class KeysOfRows(AppExtension):
    """Lets fields find the work that runs."""

    def handle_mixin(self) -> type[OperationHandle]:
        from .running import Seen  # not above: the core's handles are not loaded by every command

        return Seen


class BusinessKeyConfig(AppConfig):
    """Keys of rows. Optional: installed beside `django_idempotency`, it fills each
    `IdempotencyKeyField`.
    """

    name = "django_idempotency.contrib.business_key"
    label = "idempotency_business_key"
    verbose_name = _("Idempotency: keys of rows")
    extension = KeysOfRows()
