"""What `purge_idempotency`, `idempotency_erase` and `idempotency_stores reseal` do about the table
of calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from django.db import router
from django.db.models import Q, QuerySet

from ...api import BaseStore, Purging, setting
from ...core.at_rest import ERASED
from ...stores.orm.clock import Clock
from ..at_rest import columns
from ..at_rest.sealed import Resealing
from ..optional_app import Erased, Housekeeping, purging
from .ledger import id_of
from .messages import KINDS
from .models import OutgoingCall
from .providers import OPTIONS, provider
from .rules import ENDED

_ENDED = [state.value for state in ENDED]


class OutgoingCalls(Housekeeping):
    """The table of calls."""

    def purging(self, alias: str, store: BaseStore) -> Iterable[Purging]:
        """Return the ended calls, with the default store: they are of all of them."""
        if alias == "default" and setting("PROVIDERS"):
            yield purging("outgoing call", expired_calls)

    def add_erase_arguments(self, parser: Any) -> Iterable[str]:
        parser.add_argument(
            "--call", metavar="NAME", help="Erase what is stored of outgoing calls with this name."
        )
        return ("call",)

    def erase(
        self, options: Mapping[str, Any], *, scopes: frozenset[str], size: int, dry: bool
    ) -> Iterator[Erased]:
        if options["call"] is not None:
            erased, left = erase(options["call"], dry=dry)
            yield Erased(kind="outgoing calls", erased=erased, left=left, held_by="have not ended")

    def reseal(
        self, store: BaseStore, *, size: int, dry: bool
    ) -> Iterator[tuple[str, Counter[Resealing]]]:
        for batch in columns.reseal(rows(), tuple(KINDS), _place, size=size, dry=dry):
            yield "parts of outgoing calls", batch


def _place(call: OutgoingCall, column: str) -> tuple[bytes, ...]:
    return KINDS[column], call.pk.bytes


def rows() -> QuerySet[OutgoingCall]:
    return OutgoingCall.objects.using(router.db_for_write(OutgoingCall))


def expired_calls() -> QuerySet[OutgoingCall]:
    """Return the ended calls whose retention is over.

    A provider that is not configured any more has the default.
    """
    aliases = list(setting("PROVIDERS"))
    wanted = ~Q(provider__in=aliases) & Q(last_sent__lt=Clock(-OPTIONS["RETENTION"]))
    for alias in aliases:
        wanted |= Q(provider=alias, last_sent__lt=Clock(-provider(alias).retention))
    return rows().filter(wanted, state__in=_ENDED).order_by("state", "last_sent")


def erase(name: str, *, dry: bool = False) -> tuple[int, int]:
    """Erase what is stored of a name at every provider.

    Return how many calls were, and how many have not ended.

    The name stays used: a later call under it raises `CallResponseNotStored` if this one succeeded.
    """
    found = rows().filter(pk__in=[id_of(alias, name) for alias in setting("PROVIDERS")])
    ended = found.filter(state__in=_ENDED)
    if dry:
        return ended.count(), found.count() - ended.count()
    erased = ended.update(
        name=ERASED, url="", digest=b"", request=None, response=None, reference=""
    )
    return erased, found.exclude(state__in=_ENDED).count()
