"""The app."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.utils.translation import gettext_lazy as _

from ...checks import TAG, named
from ...runtime.wings import Erased, Extension


class Messages(Extension):
    """The table of messages. The relay deletes what it has published."""

    def add_erase_arguments(self, parser: Any) -> Iterable[str]:
        parser.add_argument("--outbox-key", metavar="KEY", help="Delete the waiting messages with this key.")
        return ("outbox_key",)

    def erase(self, options: Mapping[str, Any], *, scopes: frozenset[str], size: int, dry: bool) -> Iterator[Erased]:
        if options["outbox_key"] is not None:
            from .erasing import erase  # not above: loads the model

            erased, left = erase(options["outbox_key"], dry=dry)
            yield Erased(kind="waiting messages", erased=erased, left=left, held_by="a relay holds")


class OutboxConfig(AppConfig):
    """The outbox. Optional: installed beside `django_idempotency`, it adds a table and a command."""

    name = "django_idempotency.contrib.outbox"
    label = "idempotency_outbox"
    verbose_name = _("Idempotency: outbox")
    extension = Messages()
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        checks.register(named("django_idempotency.contrib.outbox.checks.check_outbox"), TAG)
