"""Maps the outcome of a message handler to a disposition: acknowledge, redeliver or dead-letter;
for every broker.

A message arrives at least once. Is this one a duplicate, is its first copy still being handled, can
it never succeed? The guarded call has answered that by what it returned or raised; `disposition`
translates the answer for whatever delivers, be it RabbitMQ, Celery or the sender of a webhook:

    it returned, now or earlier             Acknowledge   the effect is there, once
    its turn has not come                   Redeliver     later, as often as it takes: nothing has failed
    the message itself is wrong             DeadLetter    it would be wrong the next time, too
    the handler failed                      Redeliver     after increasing pauses; at the limit, DeadLetter

Other exceptions than `Exception` (SystemExit, cancellation) get no disposition: the consumer stops,
and its broker redelivers.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import delivery_of, is_answer

#: Failures after which a message is dead-lettered.
LIMIT = 5
#: The shortest pause, and the longest (seconds).
PAUSE = 1
LONGEST_PAUSE = 60


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Done: this delivery or an earlier one had the effect."""


@dataclass(frozen=True, slots=True)
class Redeliver:
    """Not done: deliver it again, after a pause."""

    #: Seconds to wait; at least 1.
    after: int
    #: How often the handler has failed for this message. Pass it with the next delivery.
    failures: int = 0


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Not done, and redelivery is of no use before a person has looked at it."""


Disposition = Acknowledge | Redeliver | DeadLetter


def disposition(
    error: Exception | None,
    *,
    failures: int = 0,
    limit: int = LIMIT,
    answers: type[Exception] | tuple[type[Exception], ...] = (),
) -> Disposition:
    """Return the disposition of a message whose guarded handler raised `error`; `None`: it
    returned.

    `failures` is how often it had failed before this delivery, `limit` how often it may. `answers`
    are exceptions that count as a result: those of the handler's `keep_exceptions`.
    """
    named = (answers,) if isinstance(answers, type) else answers
    if error is None or is_answer(error, named):
        return Acknowledge()
    delivery = delivery_of(error)
    if delivery == "done" and not getattr(error, "inside", False):
        return Acknowledge()
    if delivery == "later":
        return Redeliver(after=getattr(error, "retry_in", None) or PAUSE, failures=failures)
    if delivery == "never" or failures + 1 >= limit:
        return DeadLetter()
    return Redeliver(after=min(PAUSE * 2**failures, LONGEST_PAUSE), failures=failures + 1)
