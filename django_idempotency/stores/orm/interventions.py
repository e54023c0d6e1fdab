"""An operator's change of a row: decided by `interventions.intervention` under our own lock, in one short transaction.

It never waits for a lock. So a record is held if its row is locked, or its lease is live.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID, uuid4

from ...core import interventions
from ...core.interventions import Intervention
from ...core.records import MISSING, Guarantee, Record, Settlement, Status, Ticket
from ...errors import LostRace
from ...models import IdempotencyRecord
from ..base import Audit, Guard
from .clock import Clock
from .statements import UNANSWERED

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


class MakeGuard(Protocol):
    """Holds a record under its row lock, as `BaseStore.guard` does."""

    def __call__(self, ticket: Ticket, *, takeover: bool = False) -> AbstractContextManager[Guard]: ...


def intervene(
    make_guard: MakeGuard,
    connection: BaseDatabaseWrapper,
    record_id: UUID,
    change: Callable[[Record], Settlement | Intervention | None],
    audit: Audit,
) -> Intervention:
    """Write what `change` says of a record, and call `audit` in the same transaction."""
    records = IdempotencyRecord.objects.using(connection.alias).filter(pk=record_id)
    try:
        with make_guard(_ticket(record_id), takeover=True) as guard:
            decided = interventions.intervention(guard.record, change, locked=guard.record is None and records.exists())
            if isinstance(decided, Intervention):
                guard.set_rollback()
                return decided
            # A new owner token: an owner that lost the record with its lease must not settle it after this.
            ticket = interventions.ticket_by_hand(decided, uuid4())
            columns = _columns(decided.settlement) | _forgetting(decided, ticket)
            records.filter(owner=decided.settlement.fence).update(owner=ticket.owner, **columns)
            audit(decided.record)
            return decided.outcome
    except LostRace:  # SQLite does not show whose lock is in the way
        return Intervention.BUSY


def _columns(settlement: Settlement) -> dict[str, Any]:
    """Return what a change by hand writes. A response that stays is left as it is, even one that cannot be read."""
    columns: dict[str, Any] = {"status": settlement.status.value, "digest": settlement.digest}
    if settlement.status is not Status.COMPLETED and settlement.outcome is None:
        columns |= UNANSWERED
    if settlement.expires_in is not None:  # by hand it is always 0, which is now
        columns["expires_at"] = Clock()
    if settlement.new_life:
        columns["created_at"] = Clock()
    return columns


def _forgetting(change: interventions.Change, ticket: Ticket) -> dict[str, Any]:
    """Return what else a change writes that removes what a row knows about a person."""
    outcome = change.settlement.outcome
    if not change.settlement.new_life or outcome is None:
        return {}
    return {
        **{name: getattr(ticket, name) for name in ("scope", "key", "path", "request_id")},
        "completed_at": change.record.completed_at or Clock(),
        "response_status": outcome.status,
        "response_headers": json.dumps(outcome.headers),
        "response_body": None if outcome.body is MISSING else outcome.body,
    }


def _ticket(record_id: UUID) -> Ticket:
    """Make a ticket that holds a row and runs nothing. `ATOMIC` is what makes a guard lock."""
    return Ticket(
        id=record_id,
        scope="",
        key="",
        digest=b"",
        owner=uuid4(),
        now=datetime.now(timezone.utc),
        lease=0,
        ttl=0,
        guarantee=Guarantee.ATOMIC,
    )
