"""The app."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.utils.translation import gettext_lazy as _

from ... import conf
from ...checks import TAG, named
from ...runtime.wings import Erased, Extension, Purging


class OutgoingCalls(Extension):
    """The table of calls."""

    def purging(self, alias: str, store: Any) -> Iterable[Purging]:
        """Return the ended calls, with the default store: they are of all of them."""
        if alias != "default" or not conf.get("PROVIDERS"):
            return ()
        from .housekeeping import count_due, purge  # not above: loads the model

        return (Purging(kind="outgoing call", purge=purge, due=count_due),)

    def add_erase_arguments(self, parser: Any) -> Iterable[str]:
        parser.add_argument("--call", metavar="NAME", help="Erase what is stored of outgoing calls with this name.")
        return ("call",)

    def erase(self, options: Mapping[str, Any], *, scopes: frozenset[str], size: int, dry: bool) -> Iterator[Erased]:
        if options["call"] is not None:
            from .housekeeping import erase  # not above: loads the model

            erased, left = erase(options["call"], dry=dry)
            yield Erased(kind="outgoing calls", erased=erased, left=left, held_by="have not ended")

    def reseal(self, store: Any, *, size: int, dry: bool) -> Iterator[tuple[str, Counter[Any]]]:
        from .housekeeping import reseal  # not above: loads the model

        for batch in reseal(size=size, dry=dry):
            yield "parts of outgoing calls", batch


class ClientConfig(AppConfig):
    """Calls to providers. Optional: installed beside `django_idempotency`, it adds a table and a command."""

    name = "django_idempotency.contrib.client"
    label = "idempotency_client"
    verbose_name = _("Idempotency: outgoing calls")
    extension = OutgoingCalls()
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the checks, and let an operation that gives up close the calls of its steps."""
        from ...runtime.current_step import CLOSERS
        from .ledger import give_up

        if give_up not in CLOSERS:
            CLOSERS.append(give_up)
        checks.register(named("django_idempotency.contrib.client.checks.check_client"), TAG)
