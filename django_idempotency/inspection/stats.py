"""What a store's records are, counted: by status, how old the oldest running one is, how far a purge is behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..core import rules
from ..core.records import OutcomeKind, Record, Status, kind_of
from .status import DisplayStatus, display_status

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
