"""How a call ends.

Two independent questions: is the response remembered, and are the work's writes committed? The table `CONCLUSIONS`
answers both. It applies to the transaction that the guard began, which is recognised by its mark (`Guard.mark`). If
that was ended or replaced meanwhile, the response is not remembered: the call ends as a failed one, and its caller gets
`TransactionLost`. We never roll back a write that the project would have kept without us, except for 5xx (`RETURNED`).
A returned 403 that counted a failed PIN must count: rolling it back would give an attacker endless tries.

An exception that becomes a response below 500 ends as that response, since an unguarded view keeps what it wrote before
it raised. If the project uses ATOMIC_REQUESTS, Django rolls back at any exception, and so do we (`RAISED`).

A key is freed for another request only by proof that nothing was done, or by the project's word. The proofs are:

- The work was not called: an exception before it (`abandoned`), or a request that was screened out.
- It was rolled back: by a 5xx or an exception in `atomic`. The key is bound to the same request, nevertheless. So it is
  after a failed `lease`, which proves nothing: the retry is the next attempt, under the same derived keys.
- The status is one of `DROPPED_STATUSES`, or not among those that the profile remembers.
- The library that executes says that it has not begun (`keeps_begun`).

The project's word is a policy's `keep`, or `drop()`. Nothing else is proof: no header, no body, no page, no class of an
exception. Any doubt keeps.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from .rules import Execute


class WorkResult(Enum):
    """How a call ended."""

    KEPT = "kept"  # a response of the kind that is remembered
    DROPPED = "dropped"  # a refusal that the client may correct and send again under the same key
    FAILED = "failed"  # 5xx, or an exception that leaves the work
    CUT = "cut"  # cancellation, SystemExit: the work may still be running somewhere
    SUSPENDED = "suspended"  # a durable execution was suspended in the middle of it, and will resume it
    __hash__ = object.__hash__  # each member is one object, and Enum's own is Python


#: Refusals. Remembering one would lock a client out of the key that it must reuse: 400 and 415 can be corrected, 401
#: and 403 authorised, 408, 425 and 429 repeated, 409 resolved, 412 and 428 sent with a current precondition, which is a
#: header (IETF draft section 2.6, RFC 9110 section 15.5, RFC 6585).
DROPPED_STATUSES = frozenset({400, 401, 403, 408, 409, 412, 415, 425, 428, 429})


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


def keeps_begun(*, has_begun: bool, needs_rollback: bool) -> bool:
    """Is a response stored that a library has made, which says whether it has begun to execute?

    It is then, also if it reports a failure: part of the work may be done. Unless that will be rolled back.
    """
    return has_begun and not needs_rollback


class SettledState(Enum):
    """What becomes of the record."""

    COMPLETED = "completed"  # the response is remembered
    FREE = "free"  # released; another body may come
    BOUND = "bound"  # released; the same body must come again
    LEASED = "leased"  # not written: the key is busy until the lease ends
    SUSPENDED = "suspended"  # running, for one durable execution only
    __hash__ = object.__hash__  # as above


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
