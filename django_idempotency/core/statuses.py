"""The word of the header `Idempotency-Status`: it follows from the moment, and only before the work
from the problem.

Before the work nothing of this request has run, and the problem says what stands in its way. Once
the work has begun, it is how its record was left that a client needs to know: the same problem,
such as a store that does not respond, says "nothing ran" before the work, and must not say so after
it.
"""

from __future__ import annotations

from enum import Enum

from ..errors import (
    InProgress,
    KeyExpired,
    OperationHeld,
    OutcomeUnknown,
    Problem,
    RequestMismatch,
    ResponseNotStored,
)
from .conclusions import SettledState


class HeaderStatus(Enum):
    """Every value of the header."""

    CREATED = "created"  # it ran here, and a retry will not run it again
    # it ran here and was refused or dropped: the key is free, even for a different body
    RELEASED = "released"
    FAILED = "failed"  # it ran here and failed: a retry runs it again, with the same body
    LOST = (
        "lost"  # it ran here, and its record is not settled: ask again to learn what a retry gets
    )
    REPLAYED = "replayed"  # it ran before, and this is the response of that run
    NOT_STORED = "not-stored"  # it ran before, and its response was not stored
    IN_PROGRESS = "in-progress"  # it runs elsewhere
    MISMATCH = "mismatch"  # the key belongs to a different request
    # nothing ran: the key is older than its record would be, so it may have run before
    EXPIRED = "expired"
    REFUSED = "refused"  # nothing ran: the response says why
    HELD = "held"  # it may or may not have been carried out: a person is finding out
    UNKNOWN = "unknown"  # it may or may not have been committed: ask again
    DEGRADED = "degraded"  # it ran without a guard, since the store is not responding
    UNGUARDED = "unguarded"  # it ran without a guard: a retry runs it again
    OBSERVED = "observed"  # it ran without a guard, which only observes: a retry runs it again
    __hash__ = object.__hash__  # each member is one object, and Enum's own is Python


class Moment(Enum):
    """When a request meets a problem."""

    BEFORE = "before"  # its work has not begun
    DURING = "during"  # its work has begun, and its record is not settled yet
    AFTER = "after"  # its work has ended, and its record was settled, or could not be
    __hash__ = object.__hash__  # as above


#: How the record of a request that ran here was left. `None`: we did not settle it.
OF_RECORD: dict[SettledState | None, HeaderStatus] = {
    SettledState.COMPLETED: HeaderStatus.CREATED,
    SettledState.FREE: HeaderStatus.RELEASED,
    SettledState.BOUND: HeaderStatus.FAILED,
    SettledState.FORGOTTEN: HeaderStatus.FAILED,
    SettledState.LEASED: HeaderStatus.FAILED,
    None: HeaderStatus.LOST,
}

#: (moment, kind of problem) → the word. The nearest class of a problem counts, and a problem
#: without one here says `REFUSED` before the work, and otherwise how its record was left.
SAID: dict[tuple[Moment, type[Problem]], HeaderStatus] = {
    (Moment.BEFORE, KeyExpired): HeaderStatus.EXPIRED,
    (Moment.BEFORE, RequestMismatch): HeaderStatus.MISMATCH,
    (Moment.BEFORE, InProgress): HeaderStatus.IN_PROGRESS,
    (Moment.BEFORE, ResponseNotStored): HeaderStatus.NOT_STORED,
    (Moment.BEFORE, OperationHeld): HeaderStatus.HELD,
    (Moment.BEFORE, OutcomeUnknown): HeaderStatus.UNKNOWN,  # of what `OnTakeover` has found
}

#: (kind of problem, how its record was left) → the word after the work, where that says more.
SAID_OF_WORK: dict[tuple[type[Problem], HeaderStatus], HeaderStatus] = {
    # The record says so, and is completed by that.
    (
        OperationHeld,
        HeaderStatus.CREATED,
    ): HeaderStatus.HELD,
    # Whether that was committed is not known either.
    (
        OutcomeUnknown,
        HeaderStatus.LOST,
    ): HeaderStatus.UNKNOWN,
}


def status_of(
    problem: Problem, moment: Moment, left: HeaderStatus = HeaderStatus.LOST
) -> HeaderStatus | None:
    """Return the word of a problem; `None` for one of a request without a key.

    `left`: how the work has left its record.
    """
    if not problem.has_status:
        return None
    for kind in type(problem).__mro__:
        word = (
            SAID.get((moment, kind)) if moment is Moment.BEFORE else SAID_OF_WORK.get((kind, left))
        )
        if word is not None:
            return word
    return HeaderStatus.REFUSED if moment is Moment.BEFORE else left
