"""What is written to the record: when a call has ended, or is suspended, and what a claim and a renewal make of it.

The second part is the reference for stores that leave it to their server. As in `rules`, everything takes values and returns
values. `rules` has decided that the step is due.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from . import rules
from .conclusions import SettledState
from .failures import is_failure
from .records import Outcome, Record, Settlement, Status, Ticket
from .rules import Execute, operation_begun_by, operation_of

#: Seconds of work after which the deadlines that the claim has set still count: moving them costs an index entry.
AS_CLAIMED = 1.0


def settlement(
    state: SettledState,
    ticket: Ticket,
    run: Execute,
    *,
    fence: Record | None,
    outcome: Outcome | None,
    ttl: float | None,
    worked: float = 0.0,
    transaction_id: str | None = None,
) -> Settlement | None:
    """Say what the store writes, or `None` for nothing.

    `fence` is the record as it was locked before the work, when that was not yet ours: a takeover writes nothing
    until now. `outcome` is the response, or what a release notes of a failed attempt. A response is kept for its `ttl`
    (seconds) from here: one of its own moves the deadlines, and so do a takeover and work that took (`worked`, seconds)
    longer than `AS_CLAIMED`. After a refusal nothing was done, so the operation begins anew with the request that comes
    next (see `lifetime`).
    """
    if state is SettledState.LEASED:
        return None
    owner = ticket.owner if fence is None else fence.owner
    if ttl is None and (owner != ticket.owner or worked >= min(AS_CLAIMED, ticket.ttl)):
        ttl = ticket.ttl
    return Settlement(
        status=Status.COMPLETED if state is SettledState.COMPLETED else Status.FREE,
        fence=owner,
        attempt=run.attempt,
        digest=b"" if state is SettledState.FREE else ticket.digest,
        operation=operation_begun_by(ticket) if fence is None else operation_of(fence, run),
        outcome=outcome if state is SettledState.COMPLETED or is_failure(outcome) else None,
        expires_in=ttl,
        new_life=run.new_life or state is SettledState.FREE,
        transaction_id=transaction_id,
    )


def handover(record: Record, ticket: Ticket) -> Settlement:
    """Say what hands a running record over to the ticket: the same attempt continues, under a new lease and retention.

    This is how a durable execution is suspended, and how it is resumed.
    """
    return unchanged(record)._replace(
        status=Status.RUNNING, digest=ticket.digest, expires_in=ticket.ttl, lease_in=ticket.lease
    )


def unchanged(record: Record) -> Settlement:
    """Return a settlement that changes nothing but the outcome, which it drops."""
    return Settlement(
        status=record.status,
        fence=record.owner,
        attempt=record.attempt,
        digest=record.digest,
        operation=record.operation,
    )


# ---------------------------------------------------------------------------------------------------------- transitions


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
