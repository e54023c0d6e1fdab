"""Two deadlines: when the host freezes or kills the process, and when nobody waits for the result any more.

Nothing begins after either. Only the host's ends a lease: what runs for a caller that has gone runs on, and must keep its key.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta, timezone
from typing import NamedTuple, Protocol, runtime_checkable

from ..errors import DeadlinePassed

#: Ten years (seconds), the limit of every duration.
LONGEST = 3650 * 86400.0


class Ends(NamedTuple):
    """When nothing begins any more, and when the host stops (`inf`: it does not), by `time.monotonic()`."""

    begins: float
    host: float


#: `None`: there is no deadline.
ENDS: ContextVar[Ends | None] = ContextVar("django_idempotency_deadline", default=None)


@runtime_checkable
class LambdaContext(Protocol):
    """The context that AWS Lambda passes to its handlers."""

    def get_remaining_time_in_millis(self) -> int:
        """Return the time left in the invocation (milliseconds)."""
        ...


@contextmanager
def deadline(limit: float | timedelta | datetime | LambdaContext, *, stops_host: bool = True) -> Iterator[None]:
    """Set a deadline: seconds from now, an aware `datetime`, or an AWS Lambda context (a durable one, too).

    Inside it, no call waits beyond the deadline, none begins after it (`DeadlinePassed`), and a batch stops before it. A
    `lease` lasts until then and is not renewed: if the host stops at its limit, the next call takes over at once. With
    `stops_host=False` only nobody waits for the result any more, as at the deadline of a request: a lease is renewed beyond it
    while its work runs, so that no retry runs beside it. The earlier of two nested deadlines counts. Raises `TypeError` or
    `ValueError` for an invalid deadline.
    """
    left = _left(limit)
    if not left <= LONGEST:  # also for NaN
        raise ValueError(
            f"deadline({limit!r}) is too long: leases would last until then. A host without a limit needs no deadline."
        )
    ends, outer = time.monotonic() + left, ENDS.get() or Ends(math.inf, math.inf)
    token = ENDS.set(Ends(min(ends, outer.begins), min(ends, outer.host) if stops_host else outer.host))
    try:
        yield
    finally:
        ENDS.reset(token)


def remaining() -> float | None:
    """Return the seconds in which something may begin, at least 0, or `None` without a deadline."""
    ends = ENDS.get()
    return None if ends is None else max(0.0, ends.begins - time.monotonic())


def time_for(wait: float) -> float:
    """Return as much of `wait` (seconds) as is left before the deadline. Raises `DeadlinePassed` from it on."""
    left = remaining()
    if left == 0:
        raise DeadlinePassed
    return wait if left is None else min(wait, left)


def host_remaining() -> float | None:
    """Return the seconds until the host stops, at least 0, or `None` if it does not."""
    ends = ENDS.get()
    return None if ends is None or ends.host == math.inf else max(0.0, ends.host - time.monotonic())


def _left(limit: float | timedelta | datetime | LambdaContext) -> float:
    if not isinstance(limit, LambdaContext):
        limit = getattr(limit, "lambda_context", limit)  # a durable context contains the invocation's own
    if isinstance(limit, LambdaContext):
        return limit.get_remaining_time_in_millis() / 1000
    if isinstance(limit, datetime):
        if limit.tzinfo is None:
            raise ValueError("deadline() needs an aware datetime: a naive one is ambiguous.")
        return (limit - datetime.now(timezone.utc)).total_seconds()
    if isinstance(limit, timedelta):
        return limit.total_seconds()
    if type(limit) in (int, float):
        return float(limit)
    raise TypeError(f"deadline() takes seconds, an aware datetime or a Lambda context, not {limit!r}.")
