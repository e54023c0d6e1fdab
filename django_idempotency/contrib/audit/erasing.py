"""Remove what the trail knows about a person. That something happened stays: when, which event, and how it ended."""

from __future__ import annotations

from ...core.at_rest import ERASED
from ...core.scope_names import user_of
from ..at_rest.columns import batches
from ..at_rest.sealed import CannotOpen
from .models import AuditEvent, Reference
from .sealing import open_event
from .writing import database

#: What an event keeps nothing of.
_NOBODY = {"actor": "", "request_id": "", "reason": "", "sealed": None}


def erase(scopes: frozenset[str], *, size: int = 1000, dry: bool = False) -> int:
    """Erase the events of the keys of these scopes and of the users that they name, and delete the references.

    Reads both tables in batches of `size`. Return how many rows were found; `dry`: change nothing.
    """
    actors = {":".join(user) for scope in scopes if (user := user_of(scope)) is not None}
    found = 0
    events = AuditEvent.maintenance.using(database())
    for rows in batches(events, size):
        # Compared here, and not in SQL: a collation may say that `a` equals `A`.
        theirs = [row.pk for row in rows if row.scope in scopes]
        acted = [row.pk for row in rows if row.scope not in scopes and _actor(row) in actors]
        if not dry:
            events.filter(pk__in=theirs).update(scope=ERASED, key=ERASED, **_NOBODY)
            events.filter(pk__in=acted).update(**_NOBODY)
        found += len(theirs) + len(acted)
    references = Reference.maintenance.using(database(Reference))
    for rows in batches(references.only("scope"), size):
        theirs = [row.pk for row in rows if row.scope in scopes]
        if not dry:
            references.filter(pk__in=theirs).delete()
        found += len(theirs)
    return found


def _actor(row: AuditEvent) -> str | None:
    try:
        return open_event(row).actor or None
    except CannotOpen:
        return None
