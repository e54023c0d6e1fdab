"""What a claim, a settlement and a renewal make of a record: the reference for stores that leave it to their server.

As in `rules`, everything takes values and returns values. `rules` has decided that the step is due.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from . import rules
from .records import Record, Settlement, Status, Ticket


def claimed(ticket: Ticket, known: Record | None, now: datetime) -> Record:
    """Return the record that a claim makes, at the store's time `now`, if there is none or `known` is takeable."""
    born = rules.born(ticket, now)
    if known is None:
        return born
    run, purge_at = rules.succession(known), max(known.purge_at, born.purge_at)
    if run.new_life:
        return born._replace(operation=rules.operation_of(known, run), purge_at=purge_at)
    names = ("operation", "created_at", "guarantee", "secret_id", "method", "path")
    kept = {name: getattr(known, name) for name in names}
    return born._replace(attempt=run.attempt, taken=run.takeover, purge_at=purge_at, **kept)


def settled(ticket: Ticket, known: Record, settlement: Settlement, now: datetime) -> Record:
    """Return the record that a settlement makes of `known`, which it fences, at the store's time `now`."""
    born = ticket if settlement.new_life else known
    earlier = None if settlement.new_life else known.completed_at
    completes = settlement.status is Status.COMPLETED and settlement.outcome is not None
    expires_in, lease_in = settlement.expires_in, settlement.lease_in
    expires_at = known.expires_at if expires_in is None else now + timedelta(seconds=expires_in)
    return Record(
        id=known.id,
        scope=born.scope,
        key=born.key,
        digest=settlement.digest,
        status=settlement.status,
        owner=ticket.owner,
        attempt=settlement.attempt,
        guarantee=born.guarantee,
        lease_until=known.lease_until if lease_in is None else now + timedelta(seconds=lease_in),
        created_at=now if settlement.new_life else known.created_at,
        completed_at=(earlier or now) if completes else None,
        expires_at=expires_at,
        purge_at=max(known.purge_at, expires_at),
        read_at=known.read_at,
        operation=settlement.operation if settlement.new_life else known.operation,
        secret_id=born.secret_id,
        method=born.method,
        path=born.path,
        request_id=ticket.request_id,
        outcome=settlement.outcome,
        joined=known.joined,
        location=known.location,
    )


def renewed(ticket: Ticket, known: Record, now: datetime) -> Record:
    """Return the record that a renewal makes of `known`, which the ticket owns, at the store's time `now`."""
    return known._replace(lease_until=now + timedelta(seconds=ticket.lease))
