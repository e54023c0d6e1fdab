"""The app."""

from __future__ import annotations

from typing import ClassVar

from django.utils.translation import gettext_lazy as _

from .. import optional_app


class AtRestConfig(optional_app.OptionalApp):
    """Seals and hashes records as the settings say, and has the commands that seal again and
    erase. It adds no table.
    """

    name = "django_idempotency.contrib.at_rest"
    label = "idempotency_at_rest"
    verbose_name = _("Idempotency: at rest")
    command_parts: ClassVar = {"idempotency_stores reseal": "command.Reseal"}
    extends = "encryption.AtRest"
    adds = ("ENCRYPTION_KEYS", "HASH_KEYS", "idempotency_erase")
