"""How often a key came again: what a project may let count, beside the records and never in a request's trips."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple
from uuid import UUID


class Repeats(NamedTuple):
    """The retries of one record. `last_seen` is the time of the host that got the last one.

    `replays` got its response, `mismatches` were refused since they had another body. Both are lower bounds.
    """

    replays: int
    mismatches: int
    last_seen: datetime

    def plus(self, other: Repeats) -> Repeats:
        """Return both together."""
        replays, mismatches = self.replays + other.replays, self.mismatches + other.mismatches
        return Repeats(replays, mismatches, max(self.last_seen, other.last_seen))


class Counted(NamedTuple):
    """The retries of a record since the last batch. Nothing needs them after `purge_at`, when the record is purged."""

    record_id: UUID
    repeats: Repeats
    purge_at: datetime
