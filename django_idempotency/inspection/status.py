"""The display status of a record, and what a request with its key would get: the rules, in words."""

from __future__ import annotations

from enum import Enum

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from ..core import rules
from ..core.records import CALL_METHOD, MISSING, Guarantee, OutcomeKind, Record, kind_of


class DisplayStatus(Enum):
    """A record's status, combined with its deadlines. The value is its CSS class."""

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
    DisplayStatus.FREE: (_("free"), _("Released: the next request runs the work.")),
    DisplayStatus.LEASED: (_("leased"), _("Claimed a moment ago; its lease protects it.")),
    DisplayStatus.RUNNING: (
        _("running"),
        _("Its lease has ended. In atomic its owner is alive as long as its transaction holds the row."),
    ),
    DisplayStatus.COMPLETED: (_("completed"), _("Done: a retry gets the stored response.")),
    DisplayStatus.EXPIRED: (_("expired"), _("Counts as deleted: the next request runs as the first.")),
}


def display_status(record: Record) -> DisplayStatus:
    """Return a record's display status, by the store's clock. Its outcome is not read."""
    if rules.expired(record):
        return DisplayStatus.EXPIRED
    if rules.leased(record):
        return DisplayStatus.LEASED
    return DisplayStatus[record.status.name]


def next_answer(record: Record, *, purged: bool = True) -> Promise | str:
    """Return what the next request with this key gets. `purged`: does a purge delete expired records?"""
    attempt = record.attempt + 1
    match display_status(record):
        case DisplayStatus.EXPIRED if purged:
            return _("runs the work as if this record had never existed. A purge deletes the record.")
        case DisplayStatus.EXPIRED:
            return _("runs the work as if this record had never existed. The store deletes the record.")
        case DisplayStatus.COMPLETED:
            return _replay(record)
        case DisplayStatus.LEASED:
            return _("gets 409 in-progress, until the lease ends.")
        case DisplayStatus.RUNNING if record.guarantee is Guarantee.ATOMIC:
            words = _("gets 409 while the owner's transaction holds the row; if that has died, runs as attempt %d.")
        case DisplayStatus.RUNNING:
            words = _("takes over from an owner whose lease has ended, as attempt %d.")
        case _:
            words = (
                _("runs the work as attempt %d; a different body under the key gets 422.")
                if record.digest
                else _("runs the work as attempt %d; its body may differ.")
            )
    return words % attempt


def _replay(record: Record) -> Promise:
    outcome = record.outcome
    if outcome is None:
        return _(
            "gets 500 record-unreadable: the stored response is damaged. The work is not run again; it may be expired."
        )
    if kind_of(outcome) is OutcomeKind.HELD and record.method != CALL_METHOD:
        return _(
            "gets 409 operation-held. Check with the provider, then release the record: the next request runs the work."
        )
    if kind_of(outcome) is OutcomeKind.HELD:
        return _("raises HeldForPerson. Check with the provider, then release the record: the next call runs the work.")
    if outcome.body is MISSING:
        return _("gets 409 response-not-stored with the original status. The work is not run again.")
    return _("gets the response below again. The work is not run again.")
