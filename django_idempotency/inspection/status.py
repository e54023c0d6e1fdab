"""What a record is, in words: its display status, what a request with its key would get, and many
of them counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from ..core import rules
from ..core.records import (
    CALL_METHOD,
    CANCELLATIONS,
    MISSING,
    Guarantee,
    OutcomeKind,
    Record,
    Status,
    kind_of,
)
from ..core.states import RecordState, state_of


class Display(NamedTuple):
    """A state of a record, as people see it."""

    #: Its word in every language of ours, and its CSS class.
    value: str
    label: Promise
    meaning: Promise


#: State → its label and its meaning, translated.
_LABELS: dict[RecordState, tuple[Promise, Promise]] = {
    RecordState.FREE: (
        _("free"),
        _("Refused or dropped: the next request runs the work, whatever its body."),
    ),
    RecordState.FAILED: (
        _("failed"),
        _(
            "The last attempt failed, or was released by hand: the same request again runs "
            "the work."
        ),
    ),
    RecordState.RUNNING: (_("running"), _("The work runs.")),
    RecordState.ABANDONED: (
        _("abandoned"),
        _(
            "Its lease has ended: the owner is gone or hangs, and no request has come to "
            "take it over."
        ),
    ),
    RecordState.COMPLETED: (_("completed"), _("Done: a retry gets the stored response.")),
    RecordState.HELD: (
        _("held"),
        _("An attempt was abandoned, and a person finds out how far it came."),
    ),
    RecordState.CANCELLED: (
        _("cancelled"),
        _("The operation has given up: no request with its key runs any more."),
    ),
    RecordState.EXPIRED: (
        _("expired"),
        _("Counts as deleted: the next request runs as the first."),
    ),
}
DISPLAYS = {state: Display(state.value, *texts) for state, texts in _LABELS.items()}


def display_status(record: Record) -> Display:
    """Return a record's state, as people see it."""
    return DISPLAYS[state_of(record)]


def next_answer(record: Record, *, purged: bool = True) -> Promise | str:
    """Return what the next request with this key gets.

    `purged`: does a purge delete expired records?
    """
    attempt = record.attempt + 1
    match state_of(record):
        case RecordState.EXPIRED if purged:
            return _(
                "runs the work as if this record had never existed. A purge deletes the record."
            )
        case RecordState.EXPIRED:
            return _(
                "runs the work as if this record had never existed. The store deletes the record."
            )
        case RecordState.COMPLETED | RecordState.HELD | RecordState.CANCELLED:
            return _replay(record)
        case _ if rules.leased(record):
            return _("gets 409 in-progress, until the lease ends.")
        case _ if record.status is Status.RUNNING and record.guarantee is Guarantee.ATOMIC:
            words = _(
                "gets 409 while the owner's transaction holds the row; if it is abandoned, "
                "runs as attempt %d."
            )
        case RecordState.ABANDONED:
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
            "gets 500 record-unreadable: the stored response is damaged. The work is not "
            "run again; it may be expired."
        )
    if outcome in CANCELLATIONS:
        return _("gets 409 operation-cancelled or operation-undone. The work is not run again.")
    if kind_of(outcome) is OutcomeKind.HELD and record.method != CALL_METHOD:
        return _(
            "gets 409 operation-held. Check with the provider, then release the record: "
            "the next request runs the work."
        )
    if kind_of(outcome) is OutcomeKind.HELD:
        return _(
            "raises HeldForPerson. Check with the provider, then release the record: the "
            "next call runs the work."
        )
    if outcome.body is MISSING:
        return _(
            "gets 409 response-not-stored with the original status. The work is not run again."
        )
    return _("gets the response below again. The work is not run again.")


# ------------------------------------------------------------------------------------------ counted

STATUSES = tuple(state.value for state in RecordState)


@dataclass(slots=True)
class Tally:
    """The figures of the records that were added. Ages are seconds, by the store's clock."""

    by_status: Counter[str] = field(default_factory=Counter)
    #: Rows that cannot be read: damaged, or of a later version.
    unreadable: int = 0
    #: Since the oldest running record was first claimed.
    oldest_running: float = 0.0
    #: Since the lease of the longest abandoned record ended.
    longest_abandoned: float = 0.0
    #: Since the oldest record that a purge would delete could be deleted.
    purge_lag: float = 0.0

    def add(self, record: Record) -> None:
        self.by_status[status_of(record)] += 1
        if record.status is Status.RUNNING:
            self.oldest_running = max(self.oldest_running, age(record))
            self.longest_abandoned = max(
                self.longest_abandoned, (record.read_at - record.lease_until).total_seconds()
            )
        self.purge_lag = max(
            self.purge_lag, (record.read_at - rules.keep_until(record)).total_seconds()
        )

    @property
    def total(self) -> int:
        return sum(self.by_status.values()) + self.unreadable

    def figures(self, *, purged: bool) -> Iterator[tuple[str, float]]:
        """Yield the ages by name.

        `purged`: is the store purged, or does it delete expired records itself?
        """
        yield "oldest_running_seconds", round(self.oldest_running, 3)
        yield "longest_abandoned_seconds", round(self.longest_abandoned, 3)
        if purged:
            yield "purge_lag_seconds", round(self.purge_lag, 3)


def status_of(record: Record) -> str:
    """Return the word of a record's state, under which it is counted and listed."""
    return state_of(record).value


def age(record: Record) -> float:
    """Return the seconds since a record was first claimed."""
    return (record.read_at - record.created_at).total_seconds()
