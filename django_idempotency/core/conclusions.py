"""How a call ends, and what is written to its record then; and what a suspension, a claim and a
renewal write.

Two independent questions: is the response remembered, and are the work's writes committed? The
table `CONCLUSIONS` answers both. It applies to the transaction that the guard began, which is
recognised by its mark (`Guard.mark`). If that was ended or replaced meanwhile, the response is not
remembered: the call ends as a failed one, and its caller gets `TransactionLost`. We never roll back
a write that the project would have kept without us, except for 5xx (`RETURNED`). A returned 403
that counted a failed PIN must count: rolling it back would give an attacker endless tries.

A success is what is committed (`SUCCESSES`). A response below 400, or a function's result, whose
transaction an error rolls back is neither sent nor remembered, although the work has caught that
error: the caller gets `WritesRolledBack`. Without an error, `set_rollback(True)` is the project's
word, such as a dry run: its response is sent, and forgotten.

An exception that becomes a response below 500 ends as that response, since an unguarded view keeps
what it wrote before it raised. If the record is in a transaction of the project's, such as that of
ATOMIC_REQUESTS, the exception rolls all of it back, and the call has failed (`RAISED`).

A key is freed for another request only by proof that nothing was done, or by the project's word.
The proofs are:

- The work was not called: an exception before it (`withdrawn`), or a request that was screened out.
- It was rolled back: by a 5xx or an exception in `atomic`. The key is bound to the same request,
  nevertheless. So it is after a failed `lease`, which proves nothing: the retry is the next
  attempt, under the same derived keys.
- The status is one of `DROPPED_STATUSES`, or not among those that the profile remembers.
- It is a challenge: a refusal with `WWW-Authenticate` asks for the same request with credentials or
  a payment.
- It is a refusal, and the work wrote nothing in the guarded database, as its server counts
  (`refusal_ending`). That is asked where the policy says keep="written", and for keys that the
  project has chosen from the payload.
- The library that executes says that it has not begun (`keeps_begun`).

The project's word is a policy's `keep`, or `drop()`. Nothing else is proof: no body, no page, no
class of an exception. Any doubt keeps.

The last part says what a claim, a settle and a renewal make of a record: the reference for stores
that leave it to their server. As in `rules`, everything takes values and returns values.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import NamedTuple

from . import rules
from .failures import is_failure
from .hashing import first_operation
from .records import CANCELLATIONS, Outcome, Record, Settlement, Status, Ticket
from .rules import Execute, operation_of


class WorkResult(Enum):
    """How a call ended."""

    KEPT = "kept"  # a response of the kind that is remembered
    DROPPED = "dropped"  # a refusal that the client may correct and send again under the same key
    FAILED = "failed"  # 5xx, or an exception that leaves the work
    CUT = "cut"  # cancellation, SystemExit: the work may still be running somewhere
    SUSPENDED = (
        "suspended"  # a durable execution was suspended in the middle of it, and will resume it
    )
    __hash__ = object.__hash__  # each member is one object, and Enum's own is Python


#: Refusals. Remembering one would lock a client out of the key that it must reuse: 400 and 415 can
#: be corrected, 401 and 403 authorised, 408, 425 and 429 repeated, 409 resolved, 412 and 428 sent
#: with a current precondition, which is a header (IETF draft section 2.6, RFC 9110 section 15.5,
#: RFC 6585).
DROPPED_STATUSES = frozenset({400, 401, 403, 408, 409, 412, 415, 425, 428, 429})


#: The value of a policy's `keep` by which a refusal is remembered exactly if the work wrote.
WRITTEN = "written"
#: Refusals that free the key even so: the same request is meant to come again (RFC 9110 section
#: 15.5, RFC 8470, RFC 6585).
RETRIED_STATUSES = frozenset({401, 408, 425, 429})


def weighs_writes(
    keep: object, *, leases: bool, selected: bool, remembers: Collection[int] | None
) -> bool:
    """Does what the work wrote decide whether a refusal is remembered?

    `selected`: did the project choose the key from the payload? Then a client that is refused
    cannot make another one. `remembers` are the statuses that the profile stores, which is the word
    of a protocol.
    """
    if leases:
        return False
    return keep == WRITTEN or (keep is None and selected and remembers is None)


def refusal_ending(status: int, *, wrote: bool) -> WorkResult:
    """Return how a refusal (a status from 400 to 499) ends where that depends on what was
    written.
    """
    return WorkResult.KEPT if wrote and status not in RETRIED_STATUSES else WorkResult.DROPPED


def is_refusal(status: int) -> bool:
    """Does a status refuse the request?"""
    return 400 <= status < 500


def classify_status(
    status: int,
    wanted: bool | WorkResult | None = None,
    remembers: Collection[int] | None = None,
    *,
    challenges: bool = False,
) -> WorkResult:
    """Classify an HTTP status.

    `wanted` is what the policy's `keep` says about the response; `None`: nothing.

    `challenges`: does the response have `WWW-Authenticate`? If it refuses, its key is free whatever
    else is said. A `keep` of ours may know the kind itself, where a protocol reports failures with
    status 200. `remembers` are the statuses that the profile stores; `None`: all below 500 but
    `DROPPED_STATUSES`.
    """
    if challenges and is_refusal(status):
        return WorkResult.DROPPED
    if wanted is None and remembers is not None and status in remembers:
        return WorkResult.KEPT
    if isinstance(wanted, WorkResult):
        return wanted
    if status >= 500:
        return WorkResult.FAILED
    if wanted is None:
        wanted = remembers is None and status not in DROPPED_STATUSES
    return WorkResult.KEPT if wanted else WorkResult.DROPPED


@dataclass(frozen=True, kw_only=True, slots=True)
class ResponseEnding:
    """How a call ends that has a response."""

    #: Is the response treated like any other, stored or not by its status? Otherwise the call has
    #: failed.
    answers: bool
    #: May what the work wrote be committed with it?
    commit: bool


#: (is a returned response below 500?) → how the call ends. A 5xx may be kept by the view, its
#: writes never are.
RETURNED: dict[bool, ResponseEnding] = {
    True: ResponseEnding(answers=True, commit=True),
    False: ResponseEnding(answers=True, commit=False),
}

#: (does an exception become a response below 500?, is the record in a transaction of the project's,
#: which the exception rolls back when it leaves?) → how it ends.
RAISED: dict[tuple[bool, bool], ResponseEnding] = {
    # A counted PIN stays counted, however it is refused.
    (True, False): ResponseEnding(answers=True, commit=True),
    # Nothing of it stays, the record included.
    (True, True): ResponseEnding(answers=False, commit=False),
    (False, False): ResponseEnding(answers=False, commit=False),
    (False, True): ResponseEnding(answers=False, commit=False),
}


def response_ending(status: int, *, raised: bool, inside: bool) -> ResponseEnding:
    """Read the tables.

    `raised`: the response was made of an exception that left the work. `inside`: see `RAISED`.
    """
    return RAISED[status < 500, inside] if raised else RETURNED[status < 500]


def keeps_begun(*, has_begun: bool, needs_rollback: bool) -> bool:
    """Is a response stored that a library has made, which says whether it has begun to execute?

    It is then, also if it reports a failure: part of the work may be done. Unless that will be
    rolled back.
    """
    return has_begun and not needs_rollback


class Rollback(Enum):
    """Why will the work's transaction be rolled back, although the work has responded?"""

    NONE = "no"  # it will not
    ASKED = "asked"  # the project said set_rollback(True), and no error is behind that
    ERROR = "error"  # an error that the work has caught
    __hash__ = object.__hash__  # as above


class Ending(NamedTuple):
    """How the work of a call has ended, and what is kept of that."""

    work_result: WorkResult
    #: The response that is kept, or the note on a failure (`core.failures`).
    outcome: Outcome | None = None
    #: Seconds for which that is kept; `None`: as the ticket says.
    ttl: float | None = None
    #: Is it a response below 400, or a function's result?
    succeeded: bool = False
    #: Why will a transaction of the work in another database be rolled back?
    undone: Rollback = Rollback.NONE

    @property
    def is_final(self) -> bool:
        """Is the response of the work not stored, whatever it is?

        Otherwise the work has given up, and its response is its last word.
        """
        return self.outcome not in CANCELLATIONS


class SettledState(Enum):
    """What becomes of the record."""

    COMPLETED = "completed"  # the response is remembered
    FREE = "free"  # released; another body may come
    BOUND = "bound"  # released; the same body must come again
    FORGOTTEN = (
        "forgotten"  # released after a failure; another body may come, and the operation goes on
    )
    LEASED = "leased"  # not written: the key is busy until the lease ends
    SUSPENDED = "suspended"  # running, for one durable execution only
    __hash__ = object.__hash__  # as above


@dataclass(frozen=True, kw_only=True, slots=True)
class Conclusion:
    """What to do with the record, and whether the work's writes are committed with it."""

    state: SettledState
    commit: bool
    #: Does the caller get `WritesRolledBack` in place of the response?
    withheld: bool = False


#: (how a success ended, why is its transaction rolled back?) → what is remembered, what is
#: committed. A success is a response below 400, and what a function returns.
SUCCESSES: dict[tuple[WorkResult, Rollback], Conclusion] = {
    # In one transaction: the promise.
    (WorkResult.KEPT, Rollback.NONE): Conclusion(state=SettledState.COMPLETED, commit=True),
    # A dry run: nothing was done.
    (WorkResult.KEPT, Rollback.ASKED): Conclusion(state=SettledState.FREE, commit=False),
    # It says that something was done, and nothing was.
    (WorkResult.KEPT, Rollback.ERROR): Conclusion(
        state=SettledState.BOUND, commit=False, withheld=True
    ),
    # The same three, of a response that the project does not want to be remembered.
    (WorkResult.DROPPED, Rollback.NONE): Conclusion(state=SettledState.FREE, commit=True),
    (WorkResult.DROPPED, Rollback.ASKED): Conclusion(state=SettledState.FREE, commit=False),
    (WorkResult.DROPPED, Rollback.ERROR): Conclusion(
        state=SettledState.BOUND, commit=False, withheld=True
    ),
}

#: (how any other call ended, is its transaction marked for rollback?) → the same. A refusal that is
#: marked stays what it is: REST framework marks each that it makes of an exception.
CONCLUSIONS: dict[tuple[WorkResult, bool], Conclusion] = {
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


#: What a policy's `on_failure` makes of the record of a failed call. "forget" is the project's word
#: that any request may follow a rollback. The operation goes on: the same request derives the same
#: keys again.
FAILED_AS = {
    "free": SettledState.BOUND,
    "hold": SettledState.LEASED,
    "forget": SettledState.FORGOTTEN,
}


def conclude(
    ended: WorkResult, rollback: Rollback, on_failure: str = "free", *, succeeded: bool = True
) -> Conclusion:
    """Read the tables. `succeeded`: did the work respond with a status below 400, or return?"""
    conclusion = SUCCESSES.get((ended, rollback)) if succeeded else None
    if conclusion is None:
        conclusion = CONCLUSIONS[ended, rollback is not Rollback.NONE]
    if conclusion.state is SettledState.BOUND:
        return replace(conclusion, state=FAILED_AS[on_failure])
    return conclusion


def is_new(run: Execute | None) -> bool:
    """Is it the first run of a new key, so that nobody has done anything under it?"""
    return run is not None and run.attempt == 1 and not (run.takeover or run.resumed)


def withdrawn(run: Execute) -> SettledState:
    """Say how to leave a record whose work has not begun.

    That of an abandoned owner must be taken over again.
    """
    if run.resumed:
        return SettledState.SUSPENDED
    return SettledState.LEASED if run.takeover else SettledState.BOUND


# ---------------------------------------------------------------------------------- what is written

#: Seconds of work after which the deadlines that the claim has set still count: moving them costs
#: an index entry.
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
    alone: bool = False,
) -> Settlement | None:
    """Say what the store writes, or `None` for nothing.

    `fence` is the record as it was locked before the work, when that was not yet ours: a takeover
    inside a caller's transaction writes nothing until now. `outcome` is the response, or what a
    release notes of a failed attempt. A response is kept for its `ttl` (seconds) from here: one of
    its own moves the deadlines, and so do a takeover and work that took (`worked`, seconds) longer
    than `AS_CLAIMED`. After a refusal nothing was done, so the operation begins anew with the
    request that comes next (see `lifetime`).
    """
    if state is SettledState.LEASED:
        return None
    owner = ticket.owner if fence is None else fence.owner
    if ttl is None and (owner != ticket.owner or worked >= min(AS_CLAIMED, ticket.ttl)):
        ttl = ticket.ttl
    elif ttl is not None:
        ttl += ticket.seen_for
    return Settlement(
        status=Status.COMPLETED if state is SettledState.COMPLETED else Status.FREE,
        fence=owner,
        attempt=run.attempt,
        digest=b"" if state in (SettledState.FREE, SettledState.FORGOTTEN) else ticket.digest,
        operation=first_operation(ticket) if fence is None else operation_of(fence, run),
        outcome=outcome if state is SettledState.COMPLETED or is_failure(outcome) else None,
        expires_in=ttl,
        new_life=run.new_life or state is SettledState.FREE,
        transaction_id=transaction_id,
        alone=alone,
    )


def handover(record: Record, ticket: Ticket) -> Settlement:
    """Say what hands a running record over to the ticket: the same attempt continues, under a new
    lease and retention.

    This is how a durable execution is suspended, and how it is resumed. A takeover is this with
    another attempt.
    """
    return unchanged(record)._replace(
        status=Status.RUNNING, digest=ticket.digest, expires_in=ticket.ttl, lease_in=ticket.lease
    )


#: Seconds that the lease of a written takeover lasts at least: its owner comes to lock the record
#: again, while others who have read it as free may still look at it.
TAKEOVER_LEASE = 1.0


def takeover(
    record: Record, ticket: Ticket, run: Execute, transaction_id: str | None
) -> Settlement:
    """Say what makes the ticket the owner of a locked record that is takeable, before its work runs
    as `run`.

    A crash of the work must not take that back: otherwise the attempt after it would not know of
    this one, and could be another request.
    """
    return handover(record, ticket)._replace(
        attempt=run.attempt,
        operation=operation_of(record, run),
        new_life=run.new_life,
        lease_in=max(ticket.lease, TAKEOVER_LEASE),
        transaction_id=transaction_id,
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


# ------------------------------------------------------------------------- what becomes of a record


def claimed(ticket: Ticket, known: Record | None, now: datetime) -> Record:
    """Return the record that a claim makes, at the store's time `now`, if there is none or `known`
    is takeable.
    """
    born = rules.born(ticket, now)
    if known is None:
        return born
    run = rules.succession(known)
    purge_at = max(known.purge_at, born.purge_at)
    if run.new_life:
        return born._replace(operation=rules.operation_of(known, run), purge_at=purge_at)
    names = ("operation", "created_at", "guarantee", "secret_id", "method", "path")
    kept = {name: getattr(known, name) for name in names}
    return born._replace(attempt=run.attempt, taken=run.takeover, purge_at=purge_at, **kept)


def settled(ticket: Ticket, known: Record, settlement: Settlement, now: datetime) -> Record:
    """Return the record that a settlement makes of `known`, which it fences, at the store's time
    `now`.
    """
    born = ticket if settlement.new_life else known
    earlier = None if settlement.new_life else known.completed_at
    completes = settlement.status is Status.COMPLETED and settlement.outcome is not None
    expires_in = settlement.expires_in
    lease_in = settlement.lease_in
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
    """Return the record that a renewal makes of `known`, which the ticket owns, at the store's time
    `now`.
    """
    return known._replace(lease_until=now + timedelta(seconds=ticket.lease))
