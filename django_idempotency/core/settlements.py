"""What is written to the record when a call has ended, or is suspended."""

from __future__ import annotations

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
