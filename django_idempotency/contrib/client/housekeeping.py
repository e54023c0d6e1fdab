"""Deletes calls that ended long ago, and erases what is stored of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from django.db import router
from django.db.models import Q, QuerySet

from ... import conf
from ...core.at_rest import ERASED
from ...core.outgoing import ENDED
from ...stores.orm.clock import Clock
from ..at_rest import columns
from ..at_rest.sealed import Resealing
from .ledger import id_of
from .messages import KINDS
from .models import OutgoingCall
from .providers import OPTIONS, provider

_ENDED = [state.value for state in ENDED]


def expired_calls() -> QuerySet[OutgoingCall]:
    """Return the ended calls whose retention is over. A provider that is not configured any more has the default."""
    aliases = list(conf.get("PROVIDERS"))
    rules = {alias: Q(provider=alias, last_sent__lt=Clock(-provider(alias).retention)) for alias in aliases}
    wanted = ~Q(provider__in=aliases) & Q(last_sent__lt=Clock(-OPTIONS["RETENTION"]))
    for rule in rules.values():
        wanted |= rule
    return OutgoingCall.objects.using(router.db_for_write(OutgoingCall)).filter(wanted, state__in=_ENDED)


def count_due(*, limit: int) -> int:
    """Count what a purge would delete, up to `limit`."""
    return expired_calls()[:limit].count()


def purge(*, limit: int) -> int:
    """Delete up to `limit` calls whose retention is over, by their primary keys, and return how many."""
    found = list(expired_calls().order_by("state", "last_sent").values_list("pk", flat=True)[:limit])
    if not found:
        return 0
    # Its state again: a call of that name may have begun meanwhile.
    return expired_calls().filter(pk__in=found).delete()[0]


def erase(name: str, *, dry: bool = False) -> tuple[int, int]:
    """Erase what is stored of a name at every provider. Return how many calls were, and how many have not ended.

    The name stays used: a later call under it raises `CallResponseNotStored` if this one succeeded.
    """
    using = router.db_for_write(OutgoingCall)
    ids = [id_of(alias, name) for alias in conf.get("PROVIDERS")]
    found = OutgoingCall.objects.using(using).filter(pk__in=ids)
    ended = found.filter(state__in=_ENDED)
    if dry:
        return ended.count(), found.count() - ended.count()
    erased = ended.update(name=ERASED, url="", digest=b"", request=None, response=None, reference="")
    return erased, found.exclude(state__in=_ENDED).count()


def reseal(*, size: int, dry: bool = False) -> Iterator[Counter[Resealing]]:
    """Write each stored request and response as it would be written now. Yield what became of each batch."""
    calls = OutgoingCall.objects.using(router.db_for_write(OutgoingCall))
    return columns.reseal(calls, tuple(KINDS), lambda row, name: (KINDS[name], row.pk.bytes), size=size, dry=dry)
