"""The deadline of a host, when it freezes or kills the process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta, timezone
from typing import Protocol, runtime_checkable

from ..errors import DeadlinePassed

#: Ten years (seconds), the limit of every duration.
LONGEST = 3650 * 86400.0
#: By `time.monotonic()`; `None` if the host has no limit.
ENDS: ContextVar[float | None] = ContextVar("django_idempotency_deadline", default=None)
#: When the caller of this work stops waiting, in Unix seconds. It is handed on, and ends nothing:
#: what has begun runs on.
CALLER_ENDS: ContextVar[float | None] = ContextVar(
    "django_idempotency_caller_deadline", default=None
)


@runtime_checkable
class LambdaContext(Protocol):
    """The context that AWS Lambda passes to its handlers."""

    def get_remaining_time_in_millis(self) -> int:
        """Return the time left in the invocation (milliseconds)."""
        ...


@contextmanager
def deadline(limit: float | timedelta | datetime | LambdaContext) -> Iterator[None]:
    """Set the deadline of this host: seconds from now, an aware `datetime`, or an AWS Lambda
    context (a durable one, too).

    Inside it, a `lease` lasts until the deadline and is not renewed: if the host stops at its
    limit, the next call takes over at once. No call waits beyond the deadline, none begins after it
    (`DeadlinePassed`), and a batch stops before it. The earlier of two nested deadlines counts.
    Raises `TypeError` or `ValueError` for an invalid deadline.
    """
    left = _left(limit)
    if not left <= LONGEST:  # also for NaN
        raise ValueError(
            f"deadline({limit!r}) is too long: leases would last until then. A host "
            "without a limit needs no deadline."
        )
    ends = time.monotonic() + left
    outer = ENDS.get()
    token = ENDS.set(ends if outer is None else min(ends, outer))
    try:
        yield
    finally:
        ENDS.reset(token)


def remaining() -> float | None:
    """Return the seconds left, at least 0, or `None` without a deadline."""
    ends = ENDS.get()
    return None if ends is None else max(0.0, ends - time.monotonic())


def time_for(wait: float) -> float:
    """Return as much of `wait` (seconds) as is left before the deadline.

    Raises `DeadlinePassed` from it on.
    """
    left = remaining()
    if left == 0:
        raise DeadlinePassed
    return wait if left is None else min(wait, left)


def _left(limit: float | timedelta | datetime | LambdaContext) -> float:
    if not isinstance(limit, LambdaContext):
        # A durable context contains the invocation's own.
        limit = getattr(limit, "lambda_context", limit)
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
    raise TypeError(
        f"deadline() takes seconds, an aware datetime or a Lambda context, not {limit!r}."
    )
