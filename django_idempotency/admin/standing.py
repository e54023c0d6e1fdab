"""Where a record stands, and what a request with its key would get: the rules, in words."""

from __future__ import annotations

from datetime import datetime
from enum import Enum

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from ..core import rules
from ..core.records import Guarantee, Record, Status
from ..models import IdempotencyRecord


class Standing(Enum):
    """A record's status, seen together with its deadlines. The value is its style."""

    FREE = "free"
    LEASED = "leased"
    RUNNING = "running"
    COMPLETED = "completed"
    EXPIRED = "expired"

    @property
    def label(self) -> Promise:
        return _LABELS[self][0]

    @property
    def meaning(self) -> Promise:
        return _LABELS[self][1]


_LABELS = {
    Standing.FREE: (_("free"), _("Released: the next request runs the work.")),
    Standing.LEASED: (_("leased"), _("Claimed a moment ago; its lease protects it.")),
    Standing.RUNNING: (
        _("running"),
        _("Its lease is over. Its owner is alive only if its transaction still holds the row."),
    ),
    Standing.COMPLETED: (_("completed"), _("Done: a retry gets the stored response.")),
    Standing.EXPIRED: (_("expired"), _("As good as gone: the next request begins anew.")),
}


def standing(row: IdempotencyRecord) -> Standing:
    """Say where a row stands, by the database's clock: `row` is annotated with `read_at`."""
    record = facts(row)
    if rules.expired(record):
        return Standing.EXPIRED
    if rules.leased(record):
        return Standing.LEASED
    return Standing[record.status.name]


def facts(row: IdempotencyRecord) -> Record:
    """Return what the rules ask of a row; the response is not loaded for it."""
    read_at: datetime = getattr(row, "read_at")  # noqa: B009 - annotated by the page's queryset
    return Record(
        id=row.id,
        scope=row.scope,
        key=row.key,
        digest=bytes(row.digest),
        status=Status(row.status),
        owner=row.owner,
        attempt=row.attempt,
        guarantee=Guarantee(row.guarantee),
        lease_until=row.lease_until,
        created_at=row.created_at,
        completed_at=row.completed_at,
        expires_at=row.expires_at,
        read_at=read_at,
    )


def next_answer(row: IdempotencyRecord) -> Promise | str:
    """Say what the next request with this key gets."""
    attempt = row.attempt + 1
    match standing(row):
        case Standing.EXPIRED:
            return _("runs the work as if this record had never been. A purge deletes the record.")
        case Standing.COMPLETED if row.response_body is None:
            return _("gets 409 response-not-stored with the original status. The work is not run again.")
        case Standing.COMPLETED:
            return _("gets the response below again. The work is not run again.")
        case Standing.LEASED:
            return _("gets 409 in-progress, until the lease ends.")
        case Standing.RUNNING if row.guarantee == Guarantee.ATOMIC:
            words = _("gets 409 while the owner's transaction holds the row; if that has died, runs as attempt %d.")
        case Standing.RUNNING:
            words = _("takes over from an owner whose lease is over, as attempt %d.")
        case _:
            words = (
                _("runs the work as attempt %d; another body under the key gets 422.")
                if row.digest
                else _("runs the work as attempt %d; it may carry another body.")
            )
    return words % attempt
