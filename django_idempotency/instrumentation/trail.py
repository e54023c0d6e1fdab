"""Where the audit trail is attached.

Without the setting AUDIT, nothing is imported and nothing is written.

Code that has something to write asks `trail.active` first, so that a project without an audit pays
for one attribute.
"""

from __future__ import annotations

from typing import Any

from ..core.records import Record
from ..engine.operation import Operation


class Trail:
    """Receives what happens to a key. An optional app has the one that is shipped."""

    def event(self, event: str, operation: Operation, request: Any) -> None:
        """Write an event that has happened. Never raises."""

    def committing(self, event: str, operation: Operation, request: Any) -> None:
        """Write an event in the transaction that settles the record.

        Raises `StoreUnavailable` if that fails, and the transaction is rolled back.
        """

    def intervened(self, event: str, record: Record, *, actor: str, reason: str = "") -> None:
        """Write what an operator did to a record, as it was before. Never raises."""

    def refer(self, operation: Operation, kind: str, value: Any) -> None:
        """Tie a business id to the key of an operation.

        Raises `ValueError` for one that cannot be kept.
        """


class Seam:
    """The trail, if there is one."""

    #: Read at each event.
    active: Trail | None = None

    def intervened(self, event: str, record: Record, *, actor: str, reason: str = "") -> None:
        """Write an operator's change, if there is a trail."""
        if self.active is not None:
            self.active.intervened(event, record, actor=actor, reason=reason)


trail = Seam()
