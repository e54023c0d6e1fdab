"""What may be changed by hand: a record is released, expired, erased or forgotten.

Each of these is a function (`released`, `expired_now`, `erased`, `forgotten`) that says what is
written of a record; a store's `change()` takes one, and the rest here decides whether it may.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from .at_rest import ERASED, erasure
from .conclusions import unchanged
from .failures import response_of
from .hashing import next_operation
from .records import OutcomeKind, Record, Settlement, Status, Ticket, kind_of
from .rules import expired, leased, owned


class Intervention(Enum):
    """The outcome of an operator's change."""

    DONE = "done"
    BUSY = "busy"  # work is running under the key, or was a moment ago; nothing was changed
    ALREADY = "already"  # the record already had that state; nothing was changed
    GONE = "gone"  # there is no record, or no longer


#: Says what is written; `None`: the record is so already. An `Intervention`: why it stays as it is.
Wanted = Callable[[Record], "Settlement | Intervention | None"]


class Change(NamedTuple):
    """What an operator's change writes to the record that was read, and its outcome once that is
    written.
    """

    record: Record
    settlement: Settlement
    outcome: Intervention = Intervention.DONE


def intervention(
    record: Record | None, wanted: Wanted, *, locked: bool = False
) -> Change | Intervention:
    """Say what is written, or why nothing is.

    `record` is `None` if none could be read: because there is none, or because another connection
    has it `locked`.
    """
    if record is None:
        return Intervention.BUSY if locked else Intervention.GONE
    settlement = wanted(record)
    if settlement is None:
        return Intervention.ALREADY
    if isinstance(settlement, Intervention):
        return settlement
    return Intervention.BUSY if leased(record) else Change(record=record, settlement=settlement)


def ticket_by_hand(change: Change, owner: UUID) -> Ticket:
    """Return the ticket that writes an operator's change.

    What it forgets about a person is not in it either.
    """
    record = change.record
    ticket = record.ticket(owner=owner)
    if not change.settlement.new_life:
        return ticket
    ticket = ticket._replace(guarantee=record.guarantee)
    if change.settlement.outcome is None:
        return ticket
    return ticket._replace(scope=ERASED, key=ERASED, path="", request_id="")


def taken_by_hand(change: Change, claimed: Record, ticket: Ticket) -> Change | Intervention:
    """Say what is written to a running record without a lock, once the operator's ticket has
    claimed it.

    A late owner may still renew its lease, so such a record is taken over first, as any claim
    would. If it had vanished meanwhile, the claim has made a new one, which is emptied: it must not
    bind the next request.
    """
    if not owned(claimed, ticket):
        return Intervention.BUSY  # renewed, settled or taken over since it was read
    seen = change.record.operation
    if claimed.operation not in (seen, next_operation(seen)):
        emptied = unchanged(claimed)._replace(status=Status.FREE, digest=b"", expires_in=0)
        return Change(record=change.record, settlement=emptied, outcome=Intervention.GONE)
    return change._replace(settlement=change.settlement._replace(fence=ticket.owner))


def refused_by_hand(change: Change, found: Record | None, ticket: Ticket) -> Intervention:
    """Name the outcome of a change that the store refused to write; `found` was read after that.

    It was written if the record has the operator's token: a driver that got no response has tried
    again, and the second try was refused because of the first.
    """
    if found is None:
        # A server that deletes expired records may have deleted this one as soon as it was taken
        # over.
        ours = change.settlement.fence == ticket.owner and expired(change.record)
        return change.outcome if ours else Intervention.GONE
    return change.outcome if found.owner == ticket.owner else Intervention.BUSY


def released(record: Record) -> Settlement | None:
    """Say how a record is made free by hand; `None` when it is.

    The request that it was for binds as before.

    Of one that was held a person has found out that it may run: it begins anew, and so does the age
    of its keys.
    """
    if record.status is Status.FREE or expired(record):
        return None
    # An erased record is nobody's: the next request must say anew whose its key is.
    return unchanged(record)._replace(
        status=Status.FREE,
        expires_in=0 if record.scope == ERASED else None,
        new_life=kind_of(record.outcome) is OutcomeKind.HELD,
    )


def erased(record: Record) -> Settlement | None:
    """Say how a record is emptied by hand: without its response and its digest, and over; `None`
    when it is.

    The rest of it stays until `keep_until()`: a deleted record would give the next life of its key
    this one's operation.
    """
    if expired(record) and record.status is Status.FREE and not record.digest:
        return None
    return unchanged(record)._replace(status=Status.FREE, digest=b"", expires_in=0)


def forgotten(record: Record) -> Settlement | Intervention | None:
    """Say how what a record knows about a person is removed; `None` when it is. The key stays used.

    Response, digest, scope, key, path and request id go; the id stays. So until its retention ends,
    a request with the key finds a finished record without a response, and does not run: not even if
    the record was free, since an earlier attempt may have had an effect. A running record stays as
    it is, since its owner will write to it, and so does a held one, about which a person decides.
    """
    if record.scope == ERASED:
        return None
    if record.status is Status.RUNNING or kind_of(record.outcome) is OutcomeKind.HELD:
        return Intervention.BUSY
    return unchanged(record)._replace(
        status=Status.COMPLETED, digest=b"", outcome=erasure(response_of(record)), new_life=True
    )


def expired_now(record: Record) -> Settlement | None:
    """Say how a record's retention is ended by hand; `None` when it is over."""
    if expired(record):
        return None
    return unchanged(record)._replace(outcome=record.outcome, expires_in=0)


#: What an operator calls each change.
CHANGES: dict[str, Wanted] = {
    "release": released,
    "expire": expired_now,
    "erase": erased,
    "forget": forgotten,
}
