"""An operator's change of a row: decided by `interventions.intervention` under our own lock, in one
short transaction.

It never waits for a lock. So a record is held if its row is locked, or its lease is live.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from ...core import interventions
from ...core.interventions import Intervention, Wanted
from ...core.records import MISSING, Guarantee, Status, Ticket
from ...errors import LostRace, StoreUnavailable
from ...models import IdempotencyRecord
from ..base import Audit, Guard
from .clock import Clock
from .statements import UNANSWERED

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


def intervene(
    guarded: Callable[..., AbstractContextManager[Guard]],
    connection: BaseDatabaseWrapper,
    record_id: UUID,
    wanted: Wanted,
    audit: Audit,
) -> Intervention:
    """Write what is wanted of a record, and call `audit` in the same transaction.

    `guarded` is `BaseStore.guard`.
    """
    records = IdempotencyRecord.objects.using(connection.alias).filter(pk=record_id)
    try:
        with guarded(_ticket(record_id), takeover=True) as guard:
            decided = interventions.intervention(
                guard.record, wanted, locked=guard.record is None and records.exists()
            )
            if isinstance(decided, Intervention):
                guard.set_rollback()
                return decided
            # A new owner token: an owner that lost the record with its lease must not settle it
            # after this.
            ticket = interventions.ticket_by_hand(decided, uuid4())
            records.filter(owner=decided.settlement.fence).update(**_columns(decided, ticket))
            audit(decided.record)
            # The audit has lost the connection or the transaction, and raises nothing.
            if guard.needs_rollback():
                raise StoreUnavailable(
                    "The change was rolled back, since its trail could not be written. Try "
                    "it again."
                )
            return decided.outcome
    except LostRace:  # SQLite does not show whose lock is in the way
        return Intervention.BUSY


def _columns(change: interventions.Change, ticket: Ticket) -> dict[str, Any]:
    """Return what a change by hand writes.

    A response that stays is left as it is, even one that cannot be read.
    """
    settlement = change.settlement
    outcome = change.settlement.outcome
    columns: dict[str, Any] = {
        "owner": ticket.owner,
        "status": settlement.status.value,
        "digest": settlement.digest,
    }
    if settlement.status is not Status.COMPLETED and outcome is None:
        columns |= UNANSWERED
    if settlement.expires_in is not None:  # by hand it is always 0, which is now
        columns["expires_at"] = Clock()
    if settlement.new_life:
        columns["created_at"] = Clock()
        if outcome is not None:  # what the row knows about a person is forgotten
            columns |= {
                name: getattr(ticket, name) for name in ("scope", "key", "path", "request_id")
            }
            columns |= {
                "completed_at": change.record.completed_at or Clock(),
                "response_status": outcome.status,
                "response_headers": json.dumps(outcome.headers),
                "response_body": None if outcome.body is MISSING else outcome.body,
            }
    return columns


def _ticket(record_id: UUID) -> Ticket:
    """Make a ticket that holds a row and runs nothing. `ATOMIC` is what makes a guard lock."""
    now = datetime.now(timezone.utc)
    return Ticket(
        id=record_id,
        owner=uuid4(),
        now=now,
        lease=0,
        ttl=0,
        guarantee=Guarantee.ATOMIC,
        scope="",
        key="",
        digest=b"",
    )
