"""The states of a record, for people and for tools: one word for each, wherever a record is shown,
listed, counted or asked for.

A client hears of its operation in fewer words, see `standings`; and what a settle writes is in
`conclusions`.
"""

from __future__ import annotations

from datetime import timedelta
from enum import Enum

from . import rules
from .records import CANCELLATIONS, Guarantee, OutcomeKind, Record, Status, kind_of

#: An `atomic` record whose lease ended this long ago counts as abandoned: few transactions last
#: longer.
ATOMIC_PATIENCE = timedelta(minutes=1)


class RecordState(Enum):
    """A record's status, combined with its deadlines and with what it has stored. The value is its
    word, and its CSS class.
    """

    FREE = "free"  # refused or dropped: the next request runs the work, whatever its body
    # the last attempt failed, or was released by hand: the same request again runs the work
    FAILED = "failed"
    RUNNING = "running"  # the work runs
    # its owner has ended, or hangs, and nobody has taken it over: its lease is over
    ABANDONED = "abandoned"
    COMPLETED = "completed"  # done: a retry gets the stored response
    HELD = "held"  # an attempt was abandoned, and a person finds out how far it came
    CANCELLED = "cancelled"  # the operation has given up: nothing runs any more
    EXPIRED = "expired"  # counts as deleted


def state_of(record: Record) -> RecordState:
    """Return a record's state, by the store's clock.

    Of its outcome only the status and the headers are read.
    """
    if rules.expired(record):
        return RecordState.EXPIRED
    if record.status is Status.RUNNING:
        return RecordState.ABANDONED if is_abandoned(record) else RecordState.RUNNING
    if record.status is Status.FREE:
        return RecordState.FAILED if record.digest else RecordState.FREE
    outcome = record.outcome
    if kind_of(outcome) is OutcomeKind.HELD:
        return RecordState.HELD
    if outcome is not None and any(
        outcome[:2] == cancellation[:2] for cancellation in CANCELLATIONS
    ):
        return RecordState.CANCELLED
    return RecordState.COMPLETED


def is_abandoned(record: Record) -> bool:
    """Has the lease of a running record ended, and with it most likely its owner?

    In `atomic` the lease ends before the work does, and the row lock protects it from then on. A
    list cannot ask for the lock, so this goes by time.
    """
    after = ATOMIC_PATIENCE if record.guarantee is Guarantee.ATOMIC else timedelta(0)
    return record.lease_until + after <= record.read_at
