"""What a record is, in words: its display status, what a request with its key would get, and many of them counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from ..core import rules
from ..core.records import CALL_METHOD, MISSING, Guarantee, OutcomeKind, Record, Status, kind_of

#: An `atomic` record whose lease ended this long ago counts as abandoned: few transactions last longer.
ATOMIC_PATIENCE = timedelta(minutes=1)


class DisplayStatus(Enum):
    """A record's status, combined with its deadlines. The value is its CSS class."""

    FREE = "free"
    FAILED = "failed"
    RUNNING = "running"
    ABANDONED = "abandoned"
    COMPLETED = "completed"
    EXPIRED = "expired"

    @property
    def label(self) -> Promise:
        return _LABELS[self][0]

    @property
    def meaning(self) -> Promise:
        return _LABELS[self][1]


_LABELS = {
    DisplayStatus.FREE: (_("free"), _("Refused or dropped: the next request runs the work, whatever its body.")),
    DisplayStatus.FAILED: (
        _("failed"),
        _("The last attempt failed, or was released by hand: the same request again runs the work."),
    ),
    DisplayStatus.RUNNING: (_("running"), _("The work runs.")),
    DisplayStatus.ABANDONED: (
        _("abandoned"),
        _("Its lease has ended: the owner has crashed or hangs, and no request has come to take it over."),
    ),
    DisplayStatus.COMPLETED: (_("completed"), _("Done: a retry gets the stored response.")),
    DisplayStatus.EXPIRED: (_("expired"), _("Counts as deleted: the next request runs as the first.")),
}


def display_status(record: Record) -> DisplayStatus:
    """Return a record's display status, by the store's clock. Its outcome is not read."""
    if rules.expired(record):
        return DisplayStatus.EXPIRED
    match record.status:
        case Status.RUNNING:
            return DisplayStatus.ABANDONED if is_abandoned(record) else DisplayStatus.RUNNING
        case Status.FREE:
            return DisplayStatus.FAILED if record.digest else DisplayStatus.FREE
        case Status.COMPLETED:
            return DisplayStatus.COMPLETED


def is_abandoned(record: Record) -> bool:
    """Has the lease of a running record ended, and with it most likely its owner?

    In `atomic` the lease ends before the work does, and the row lock protects it from then on. A list cannot ask for the
    lock, so this goes by time.
    """
    after = ATOMIC_PATIENCE if record.guarantee is Guarantee.ATOMIC else timedelta(0)
    return record.lease_until + after <= record.read_at


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
        case _ if rules.leased(record):
            return _("gets 409 in-progress, until the lease ends.")
        case _ if record.status is Status.RUNNING and record.guarantee is Guarantee.ATOMIC:
            words = _("gets 409 while the owner's transaction holds the row; if that has died, runs as attempt %d.")
        case DisplayStatus.ABANDONED:
            words = _("takes over from an owner whose lease has ended, as attempt %d.")
        case _:
            words = (
                _("runs the work as attempt %d; a different body under the key gets 422.")
                if record.digest
                else _("runs the work as attempt %d; its body may differ.")
            )
    return words % attempt


def _replay(record: Record) -> Promise:
    outcome = None if record.outcome is None else rules.readable(record.outcome)
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


# ------------------------------------------------------------------------------------------------------------ counted

#: Completed as "held": a person decides about the key.
HELD = "held"
STATUSES = (*(status.value for status in DisplayStatus), HELD)


@dataclass(slots=True)
class Tally:
    """The figures of the records that were added. Ages are seconds, by the store's clock."""

    by_status: Counter[str] = field(default_factory=Counter)
    #: Rows that cannot be read: damaged, or of a later version.
    unreadable: int = 0
    #: Since the oldest running record was first claimed.
    oldest_running: float = 0.0
    #: Since the longest lapsed lease ended: its owner has crashed, or hangs.
    longest_lapsed: float = 0.0
    #: Since the oldest record that a purge would delete could be deleted.
    purge_lag: float = 0.0

    def add(self, record: Record) -> None:
        self.by_status[status_of(record)] += 1
        if record.status is Status.RUNNING:
            self.oldest_running = max(self.oldest_running, age(record))
            self.longest_lapsed = max(self.longest_lapsed, (record.read_at - record.lease_until).total_seconds())
        self.purge_lag = max(self.purge_lag, (record.read_at - rules.keep_until(record)).total_seconds())

    @property
    def total(self) -> int:
        return sum(self.by_status.values()) + self.unreadable

    def figures(self, *, purged: bool) -> Iterator[tuple[str, float]]:
        """Yield the ages by name. `purged`: is the store purged, or does it delete expired records itself?"""
        yield "oldest_running_seconds", round(self.oldest_running, 3)
        yield "longest_lapsed_lease_seconds", round(self.longest_lapsed, 3)
        if purged:
            yield "purge_lag_seconds", round(self.purge_lag, 3)


def status_of(record: Record) -> str:
    """Return the status under which a record is counted: that of the admin, or `HELD`."""
    status = display_status(record)
    if status is DisplayStatus.COMPLETED and kind_of(record.outcome) is OutcomeKind.HELD:
        return HELD
    return status.value


def age(record: Record) -> float:
    """Return the seconds since a record was first claimed."""
    return (record.read_at - record.created_at).total_seconds()
