"""What becomes of a message: done with, delivered again, or a case for a person. One table for every broker.

A message comes at least once, and so do questions about it: is this one a duplicate, is its first copy still at work, is
it one that can never work? The call under its key has answered them by what it returned or raised; `disposition` says
what that means to whoever delivers, be it RabbitMQ, Celery or the sender of a webhook:

    it returned, now or the first time      Acknowledge   the effect is there, once
    its turn has not come                   Redeliver     later, as often as it takes: nothing has failed
    the message itself is wrong             DeadLetter    it would be as wrong the next time
    the handler failed                      Redeliver     after longer and longer pauses; at the limit, DeadLetter

What is no `Exception` (SystemExit, cancellation) gets no disposition: the consumer stops, and its broker delivers again.
"""

from __future__ import annotations

from dataclasses import dataclass

from .errors import (
    CalledItself,
    DeadlinePassed,
    HeldForPerson,
    InProgress,
    KeyMalformed,
    KeyMissing,
    LostRace,
    NotDigestible,
    NotSelectable,
    OutcomeUnknown,
    ReplayRefused,
    RequestMismatch,
    ResponseNotStored,
    ScopeRequired,
    StoreUnavailable,
    is_answer,
)

#: The work is done; a message wants no answer.
_DONE = (ResponseNotStored,)
#: Another owner is at work, or we cannot tell now: the same message gets its answer later.
_NOT_YET = (InProgress, LostRace, DeadlinePassed, StoreUnavailable, OutcomeUnknown)
#: The message or the program is at fault, or a person has to look: no delivery changes that.
_NEVER = (
    *(KeyMissing, KeyMalformed, ScopeRequired, NotDigestible, NotSelectable),
    *(RequestMismatch, ReplayRefused, HeldForPerson, CalledItself),
)

#: After so many failures a message is a dead letter.
LIMIT = 5
#: The shortest pause, and the longest (seconds).
PAUSE, LONGEST_PAUSE = 1, 60


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Done with: its effect is there, by this delivery or an earlier one."""


@dataclass(frozen=True, slots=True)
class Redeliver:
    """Not done with: deliver it again, not sooner than after a pause."""

    #: Seconds to wait; at least 1.
    after: int
    #: How often the handler has failed for this message. Hand it in with the next delivery.
    failures: int = 0


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Not done with, and delivering it again is of no use before a person has looked."""


Disposition = Acknowledge | Redeliver | DeadLetter


def disposition(
    error: Exception | None,
    *,
    failures: int = 0,
    limit: int = LIMIT,
    answers: type[Exception] | tuple[type[Exception], ...] = (),
) -> Disposition:
    """Say what becomes of a message whose guarded handler raised `error`; `None`: it returned.

    `failures` is how often it had failed before this delivery, `limit` how often it may. `answers` are exceptions that
    are as good as a result: those of the handler's `keep_exceptions`.
    """
    done = isinstance(error, _DONE) and not error.inside
    if error is None or done or is_answer(error, _tuple(answers)):
        return Acknowledge()
    if isinstance(error, _NOT_YET):
        return Redeliver(after=getattr(error, "retry_in", None) or PAUSE, failures=failures)
    if isinstance(error, _NEVER) or failures + 1 >= limit:
        return DeadLetter()
    return Redeliver(after=min(PAUSE * 2**failures, LONGEST_PAUSE), failures=failures + 1)


def _tuple(classes: type[Exception] | tuple[type[Exception], ...]) -> tuple[type[Exception], ...]:
    return (classes,) if isinstance(classes, type) else classes
