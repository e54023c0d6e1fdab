"""Every decision of django-idempotency. Start reading here.

Two rules about the rules:

1. Everything that decides lives in this file. A store knows one predicate of it, `takeable` (a copy in front of a
   store, `answerable_from_copy`), and never judges. The entry points translate the verdicts and never judge either.
   Stores that leave the predicate to their server spell it out there: `stores/orm/statements.py`,
   `stores/redis/scripts/change.lua` and `stores/dynamodb/store.py`. The contract in `testing/contract` compares each
   with this file. What a claim, a settlement and a renewal make of a record is in `transitions.py`.
2. Everything here takes values and returns values. No clock, no I/O: deadlines are compared with the `read_at` that
   the store put beside the row, so both come from one clock.

The life of a record
--------------------

A new record is RUNNING, with its owner's token, a lease and an expiry. When the work ends, it is settled:

    (none) --claim--> RUNNING --settle--> COMPLETED --expires--> (as if none)
                       |   ^
             release   |   | claim or takeover, attempt + 1
                       v   |
                       FREE

A durable execution leaves its record RUNNING when its engine suspends it, under a token that it can compute again (see
`engine.durable`).

A claim that finds a record reads it in this order:

1. Another scope or key under the same id: a collision of digests, so `Mismatch` (`at_rest.is_same_key`).
2. Our own token on a running record: `Execute`. We claimed it a moment ago.
3. Another request under the same key: `Mismatch`, even while the first one runs. The digest binds until the record
   expires, unless a release has lifted it (a refused request may be corrected under the same key).
4. `takeable`: free, or expired, or the lease has ended. `Execute` where the store leaves the takeover to the guard's
   row lock (`atomic`). Elsewhere the store has taken over what it could in the claim itself, so what is left is `Busy`.
5. Completed: `Replay`, or `Unreadable` if the store found no outcome that it could read. One that is sealed and could
   not be opened (see `at_rest`) is a `Replay` without headers and body. Running: `Busy` until the lease ends, except for
   the durable execution that has suspended it.

A live lease is never taken over, even if the record has expired meanwhile: its work still runs.

How a call ends
---------------

Two independent questions: is the response remembered, and are the work's writes committed? The table `CONCLUSIONS`
answers both. It applies to the transaction that the guard began, which is recognised by its mark (`Guard.mark`). If
that was ended or replaced meanwhile, the response is not remembered: the call ends as a failed one, and its caller gets
`TransactionLost`. We never roll back a write that the project would have kept without us, except for 5xx (`RETURNED`).
A returned 403 that counted a failed PIN must count: rolling it back would give an attacker endless tries.

An exception that becomes a response below 500 ends as that response, since an unguarded view keeps what it wrote before
it raised. If the project uses ATOMIC_REQUESTS, Django rolls back at any exception, and so do we (`RAISED`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from .at_rest import ERASED, erasure, is_same_key, readable
from .failures import is_failure, response_of
from .hashing import first_operation, next_operation
from .records import Guarantee, Outcome, OutcomeKind, Record, Settlement, Status, Ticket, kind_of

# ---------------------------------------------------------------------------------------------------------- verdicts


class Execute(NamedTuple):
    """Run the work, as this attempt. `takeover`: an earlier owner crashed and may have done part of it.

    `resumed`: a durable execution has done part of it, knows which, and continues.
    """

    attempt: int
    takeover: bool = False
    new_life: bool = False
    resumed: bool = False


class Replay(NamedTuple):
    """Return the remembered outcome; the work does not run."""

    outcome: Outcome
    attempt: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Busy:
    """The work runs elsewhere. Ask again in `retry_after` whole seconds, at least one."""

    retry_after: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Mismatch:
    """The key was used for another request."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unreadable:
    """The work was done, but its record is damaged, so its outcome is unknown. It does not run again."""


Verdict = Execute | Replay | Busy | Mismatch | Unreadable


def expired(record: Record) -> bool:
    """Has the retention ended, with no work under way? It has at the deadline itself."""
    return record.expires_at <= record.read_at and not leased(record)


def leased(record: Record) -> bool:
    """Does an owner's lease still protect the record?"""
    return record.status is Status.RUNNING and record.read_at < record.lease_until


def keep_until(record: Record) -> datetime:
    """Return the moment before which no store deletes the record.

    That is `purge_at`, or the end of a lease beyond it. `purge_at` is the end of the retention as the claim fixed it,
    lengthened when that is lengthened, and never shortened: by neither *Expire*, *Erase* nor a response's own `ttl`. So
    the next life of the key finds the record, and derives other keys than this one (see `hashing.first_operation`).
    """
    return max(record.purge_at, record.lease_until) if record.status is Status.RUNNING else record.purge_at


def binds(record: Record, digest: bytes) -> bool:
    """Does the record only accept a request other than the one with this digest?"""
    return record.digest not in (b"", digest)


def owned(record: Record, ticket: Ticket) -> bool:
    """Is the record this ticket's already? A lease shorter than the way back from the store changes nothing."""
    return record.status is Status.RUNNING and record.owner == ticket.owner


def takeable(record: Record, ticket: Ticket) -> bool:
    """May this ticket become the record's owner? The one predicate that stores know (see "The life of a record")."""
    if not is_same_key(record, ticket):
        return False
    if record.status is Status.COMPLETED:
        return expired(record)
    return not owned(record, ticket) and (expired(record) or _unheld(record, ticket))


def _unheld(record: Record, ticket: Ticket) -> bool:
    """Does a record that has not expired wait for an owner, and for this ticket's request?"""
    return record.status is not Status.COMPLETED and not leased(record) and not binds(record, ticket.digest)


def untouched(record: Record, seen: Record, ticket: Ticket, settlement: Settlement) -> bool:
    """May this ticket still settle what it has seen? A token alone does not say: an owner's own settle keeps it.

    Our own completed record is never released: an error after COMMIT is no reason to run the work again.
    """
    same = (record.owner, record.status, record.attempt) == (seen.owner, seen.status, seen.attempt)
    releases_it = record.status is Status.COMPLETED and settlement.status is not Status.COMPLETED
    return same or (record.owner == ticket.owner and not releases_it)


def born(ticket: Ticket, now: datetime, operation: UUID | None = None) -> Record:
    """Return the record that the first claim of a key makes, at the store's `now`.

    `operation` is operation_begun_by() of the ticket, if that is known.
    """
    expires_at = now + timedelta(seconds=ticket.ttl)
    return Record(
        id=ticket.id,
        scope=ticket.scope,
        key=ticket.key,
        digest=ticket.digest,
        status=Status.RUNNING,
        owner=ticket.owner,
        attempt=1,
        guarantee=ticket.guarantee,
        lease_until=now + timedelta(seconds=ticket.lease),
        created_at=now,
        completed_at=None,
        expires_at=expires_at,
        purge_at=expires_at,
        read_at=now,
        operation=operation_begun_by(ticket) if operation is None else operation,
        secret_id=ticket.secret_id,
        method=ticket.method,
        path=ticket.path,
        request_id=ticket.request_id,
    )


def succession(record: Record) -> Execute:
    """Say which attempt the next owner of a takeable record is."""
    if expired(record):
        return Execute(attempt=1, new_life=True)
    return Execute(attempt=record.attempt + 1, takeover=record.status is Status.RUNNING)


def operation_begun_by(ticket: Ticket) -> UUID:
    """Name the operation of a ticket whose key is new."""
    return first_operation(ticket.id, ticket.now, ticket.ttl)


def operation_of(record: Record, run: Execute) -> UUID:
    """Name the operation that a run of this record works at.

    A new life that is not written yet follows from the record that it replaces. In `atomic` nothing is written before
    the settle, so a second owner that finds the expired record again, after the first one crashed, names the same one.
    """
    return next_operation(record.operation) if run.new_life else record.operation


def read(
    record: Record, ticket: Ticket, unanswered: bool = False, resuming: int = 0
) -> Execute | Replay | Busy | Mismatch | Unreadable:
    """Judge a record for the ticket that claimed it. `unanswered`: an earlier claim of the same ticket got no response.

    That claim may have taken the record over from an owner that crashed, without our knowledge. Reporting a takeover
    that did not happen is better than missing one. `resuming` is the attempt that the
    ticket's own execution has suspended (0: none was found): if that is what is ours now, it goes on.
    """
    if not is_same_key(record, ticket):
        return Mismatch()
    if owned(record, ticket):
        resumed = record.attempt == resuming
        takeover = record.taken or (unanswered and record.attempt > 1 and not resumed)
        return Execute(attempt=record.attempt, takeover=takeover, resumed=resumed)
    over = expired(record)
    if not over and binds(record, ticket.digest):
        return Mismatch()
    if over or _unheld(record, ticket):  # takeable
        return succession(record) if ticket.guarantee is Guarantee.ATOMIC else Busy(retry_after=1)
    if record.status is Status.COMPLETED:
        outcome = record.outcome
        return Unreadable() if outcome is None else Replay(outcome=readable(outcome), attempt=record.attempt)
    return busy(record)


#: By how much a store's clock and a host's stopwatch may disagree about a moment: SQLite counts milliseconds.
GRAIN = timedelta(milliseconds=10)


def foreseen(record: Record, ticket: Ticket, *, took: float) -> Verdict:
    """Say what a guard would have decided about a request that has run without one.

    `record` is what its claim found, after a run that `took` so many seconds. If another run has completed in between,
    the two were under way at the same time, and the guard would have found that one running.
    """
    verdict = read(record, ticket)
    if isinstance(verdict, Replay) and record.completed_at is not None:
        began = record.read_at - timedelta(seconds=took)
        if record.completed_at > began + GRAIN:
            return Busy(retry_after=1)
    return verdict


def answerable_from_copy(record: Record, ticket: Ticket) -> bool:
    """May a copy of the record answer this ticket, without asking the store that decides? Never if work may run."""
    if not is_same_key(record, ticket) or owned(record, ticket):
        return False
    if record.status is Status.COMPLETED:
        return record.outcome is not None and not expired(record)
    return leased(record)


def busy(record: Record) -> Busy:
    """Say when to ask again: when the lease ends, rounded up; at least a second, since zero invites a storm."""
    left = (record.lease_until - record.read_at) / timedelta(seconds=1)
    return Busy(retry_after=max(1, math.ceil(left)))


# -------------------------------------------------------------------------------------------------------- conclusion


class WorkResult(Enum):
    """How a call ended."""

    KEPT = "kept"  # a response of the kind that is remembered
    DROPPED = "dropped"  # a refusal that the client may correct and send again under the same key
    FAILED = "failed"  # 5xx, or an exception that leaves the work
    CUT = "cut"  # cancellation, SystemExit: the work may still be running somewhere
    SUSPENDED = "suspended"  # a durable execution was suspended in the middle of it, and will resume it


#: Refusals. Remembering one would lock a client out of the key that it must reuse: 400 and 415 can be corrected, 401
#: and 403 authorised, 408, 425 and 429 repeated, 409 resolved (IETF draft section 2.6, RFC 9110 section 15.5).
DROPPED_STATUSES = frozenset({400, 401, 403, 408, 409, 415, 425, 429})


def classify_status(status: int, wanted: bool | None = None, remembers: Collection[int] | None = None) -> WorkResult:
    """Classify an HTTP status. `wanted` is what the policy's `keep` says about the response; `None`: nothing.

    `remembers` are the statuses that the profile stores; `None`: all below 500 but `DROPPED_STATUSES`.
    """
    if wanted is None and remembers is not None and status in remembers:
        return WorkResult.KEPT
    if status >= 500:
        return WorkResult.FAILED
    if wanted is None:
        wanted = remembers is None and status not in DROPPED_STATUSES
    return WorkResult.KEPT if wanted else WorkResult.DROPPED


@dataclass(frozen=True, kw_only=True, slots=True)
class ResponseEnding:
    """How a call ends that has a response."""

    #: Is the response treated like any other, stored or not by its status? Otherwise the call has failed.
    answers: bool
    #: May what the work wrote be committed with it?
    commit: bool


#: (is a returned response below 500?) → how the call ends. A 5xx may be kept by the view, its writes never are.
RETURNED: dict[bool, ResponseEnding] = {
    True: ResponseEnding(answers=True, commit=True),
    False: ResponseEnding(answers=True, commit=False),
}

#: (does an exception become a response below 500?, does ATOMIC_REQUESTS hold for the record's database?) → how it ends.
RAISED: dict[tuple[bool, bool], ResponseEnding] = {
    (True, False): ResponseEnding(answers=True, commit=True),  # a counted PIN stays counted, however it is refused
    (True, True): ResponseEnding(answers=True, commit=False),  # as Django does
    (False, False): ResponseEnding(answers=False, commit=False),
    (False, True): ResponseEnding(answers=False, commit=False),
}


def response_ending(status: int, *, raised: bool, atomic_requests: bool) -> ResponseEnding:
    """Read the tables. `raised`: the response was made of an exception that left the work."""
    return RAISED[status < 500, atomic_requests] if raised else RETURNED[status < 500]


def keeps_reported_failure(*, refused: bool, needs_rollback: bool) -> bool:
    """Is a response stored whose body reports a failure that its status does not? `refused`: nothing was done.

    Partly done work is, since a retry would repeat that part, unless it will be rolled back.
    """
    return not refused and not needs_rollback


class SettledState(Enum):
    """What becomes of the record."""

    COMPLETED = "completed"  # the response is remembered
    FREE = "free"  # released; another body may come
    BOUND = "bound"  # released; the same body must come again
    LEASED = "leased"  # not written: the key is busy until the lease ends
    SUSPENDED = "suspended"  # running, for one durable execution only


@dataclass(frozen=True, kw_only=True, slots=True)
class Conclusion:
    """What to do with the record, and whether the work's writes are committed with it."""

    state: SettledState
    commit: bool


#: (how the call ended, is its transaction marked for rollback?) → what is remembered, what is committed.
CONCLUSIONS: dict[tuple[WorkResult, bool], Conclusion] = {
    # In one transaction: the promise. In the second row the view discarded its writes, but not its response.
    (WorkResult.KEPT, False): Conclusion(state=SettledState.COMPLETED, commit=True),
    (WorkResult.KEPT, True): Conclusion(state=SettledState.COMPLETED, commit=False),
    # A counted PIN stays counted.
    (WorkResult.DROPPED, False): Conclusion(state=SettledState.FREE, commit=True),
    (WorkResult.DROPPED, True): Conclusion(state=SettledState.FREE, commit=False),
    # As if the call had never been made.
    (WorkResult.FAILED, False): Conclusion(state=SettledState.BOUND, commit=False),
    (WorkResult.FAILED, True): Conclusion(state=SettledState.BOUND, commit=False),
    # It is unknown what still runs.
    (WorkResult.CUT, False): Conclusion(state=SettledState.LEASED, commit=False),
    (WorkResult.CUT, True): Conclusion(state=SettledState.LEASED, commit=False),
    # `lease` only: no transaction stays open that long.
    (WorkResult.SUSPENDED, False): Conclusion(state=SettledState.SUSPENDED, commit=False),
    (WorkResult.SUSPENDED, True): Conclusion(state=SettledState.SUSPENDED, commit=False),
}


def conclude(ended: WorkResult, needs_rollback: bool, hold_failures: bool = False) -> Conclusion:
    """Read the table. `hold_failures` (`on_failure="hold"`) leaves a failed call's key busy until its lease ends."""
    conclusion = CONCLUSIONS[ended, needs_rollback]
    if hold_failures and conclusion.state is SettledState.BOUND:
        return Conclusion(state=SettledState.LEASED, commit=conclusion.commit)
    return conclusion


def abandoned(run: Execute) -> SettledState:
    """Say how to leave a record whose work has not begun. One of a crashed owner must be taken over again."""
    if run.resumed:
        return SettledState.SUSPENDED
    return SettledState.LEASED if run.takeover else SettledState.BOUND


def settlement(
    state: SettledState,
    ticket: Ticket,
    run: Execute,
    *,
    fence: Record | None,
    outcome: Outcome | None,
    ttl: float | None,
    worked: float = 0.0,
) -> Settlement | None:
    """Say what the store writes, or `None` for nothing.

    `fence` is the record as it was locked before the work, when that was not yet ours: a takeover writes nothing
    until now. `outcome` is the response, or what a release notes of a failed attempt. A takeover restarts the retention, and so does work that took (`worked`, seconds) longer than its
    response was to be kept. Otherwise only a response's own `ttl` (seconds) moves it.
    """
    if state is SettledState.LEASED:
        return None
    owner = ticket.owner if fence is None else fence.owner
    if ttl is None and (owner != ticket.owner or worked >= ticket.ttl):
        ttl = ticket.ttl
    return Settlement(
        status=Status.COMPLETED if state is SettledState.COMPLETED else Status.FREE,
        fence=owner,
        attempt=run.attempt,
        digest=b"" if state is SettledState.FREE else ticket.digest,
        operation=operation_begun_by(ticket) if fence is None else operation_of(fence, run),
        outcome=outcome if state is SettledState.COMPLETED or is_failure(outcome) else None,
        expires_in=ttl,
        new_life=run.new_life,
    )


def handover(record: Record, ticket: Ticket) -> Settlement:
    """Say what hands a running record over to the ticket: the same attempt continues, under a new lease and retention.

    This is how a durable execution is suspended, and how it is resumed.
    """
    return _same(record)._replace(
        status=Status.RUNNING, digest=ticket.digest, expires_in=ticket.ttl, lease_in=ticket.lease
    )


def _same(record: Record) -> Settlement:
    """Return a settlement that changes nothing but the outcome, which it drops."""
    return Settlement(
        status=record.status,
        fence=record.owner,
        attempt=record.attempt,
        digest=record.digest,
        operation=record.operation,
    )


# ----------------------------------------------------------------------------------------------------- for an operator


class Intervention(Enum):
    """The outcome of an operator's change."""

    DONE = "done"
    BUSY = "busy"  # work is running under the key, or was a moment ago; nothing was changed
    ALREADY = "already"  # the record already had that state; nothing was changed
    GONE = "gone"  # there is no record, or no longer


class Change(NamedTuple):
    """What an operator's change writes to the record that was read, and its outcome once that is written."""

    record: Record
    settlement: Settlement
    outcome: Intervention = Intervention.DONE


def intervention(
    record: Record | None, change: Callable[[Record], Settlement | Intervention | None], *, locked: bool = False
) -> Change | Intervention:
    """Say what `change` (`released`, `expired_now`, `erased` or `forgotten`) writes, or why nothing is written.

    `record` is `None` if none could be read: because there is none, or because another connection has it `locked`.
    """
    if record is None:
        return Intervention.BUSY if locked else Intervention.GONE
    settlement = change(record)
    if settlement is None:
        return Intervention.ALREADY
    if isinstance(settlement, Intervention):
        return settlement
    return Intervention.BUSY if leased(record) else Change(record=record, settlement=settlement)


def ticket_by_hand(change: Change, owner: UUID) -> Ticket:
    """Return the ticket that writes an operator's change. What it forgets about a person is not in it either."""
    record = change.record
    ticket = record.ticket(owner=owner)
    if not change.settlement.new_life:
        return ticket
    return ticket._replace(scope=ERASED, key=ERASED, path="", request_id="", guarantee=record.guarantee)


def taken_by_hand(change: Change, claimed: Record, ticket: Ticket) -> Change | Intervention:
    """Say what is written to a running record without a lock, once the operator's ticket has claimed it.

    A late owner may still renew its lease, so such a record is taken over first, as any claim would. If it had vanished
    meanwhile, the claim has made a new one, which is emptied: it must not bind the next request.
    """
    if not owned(claimed, ticket):
        return Intervention.BUSY  # renewed, settled or taken over since it was read
    seen = change.record.operation
    if claimed.operation not in (seen, next_operation(seen)):
        emptied = _same(claimed)._replace(status=Status.FREE, digest=b"", expires_in=0)
        return Change(record=change.record, settlement=emptied, outcome=Intervention.GONE)
    return change._replace(settlement=change.settlement._replace(fence=ticket.owner))


def refused_by_hand(change: Change, found: Record | None, ticket: Ticket) -> Intervention:
    """Name the outcome of a change that the store refused to write; `found` was read after that.

    It was written if the record has the operator's token: a driver that got no response has tried again, and the second
    try was refused because of the first.
    """
    if found is None:
        # A server that deletes expired records may have deleted this one as soon as it was taken over.
        ours = change.settlement.fence == ticket.owner and expired(change.record)
        return change.outcome if ours else Intervention.GONE
    return change.outcome if found.owner == ticket.owner else Intervention.BUSY


def released(record: Record) -> Settlement | None:
    """Say how a record is made free by hand; `None` when it is. The request that it was for binds as before."""
    if record.status is Status.FREE or expired(record):
        return None
    # An erased record is nobody's: the next request must say anew whose its key is.
    return _same(record)._replace(status=Status.FREE, expires_in=0 if record.scope == ERASED else None)


def erased(record: Record) -> Settlement | None:
    """Say how a record is emptied by hand: without its response and its digest, and over; `None` when it is.

    The rest of it stays until `keep_until()`: a deleted record would give the next life of its key this one's
    operation.
    """
    if expired(record) and record.status is Status.FREE and not record.digest:
        return None
    return _same(record)._replace(status=Status.FREE, digest=b"", expires_in=0)


def forgotten(record: Record) -> Settlement | Intervention | None:
    """Say how what a record knows about a person is removed; `None` when it is. The key stays used.

    Response, digest, scope, key, path and request id go; the id stays. So until its retention ends, a request with the key
    finds a finished record without a response, and does not run: not even if the record was free, since an earlier attempt
    may have had an effect. A running record stays as it is, since its owner will write to it, and so does a held one, about
    which a person decides.
    """
    if record.scope == ERASED:
        return None
    if record.status is Status.RUNNING or kind_of(record.outcome) is OutcomeKind.HELD:
        return Intervention.BUSY
    return _same(record)._replace(
        status=Status.COMPLETED, digest=b"", outcome=erasure(response_of(record)), new_life=True
    )


def expired_now(record: Record) -> Settlement | None:
    """Say how a record's retention is ended by hand; `None` when it is over."""
    if expired(record):
        return None
    return _same(record)._replace(outcome=record.outcome, expires_in=0)
