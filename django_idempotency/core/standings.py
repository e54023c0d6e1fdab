"""What a problem says about its operation: running · completed · held · undone · unknown.

No problem says that the operation was not applied. That a key has no record does not prove it: an
earlier request may have run while idempotency was switched off or only observed, or past a store
that was down, or its record may have expired. So a problem about no record says nothing, and none
says that a new key is safe.
"""

from __future__ import annotations

from enum import Enum

from ..errors import Problem, RequestMismatch
from . import rules
from .records import CANCELLATIONS, UNDONE, OutcomeKind, Record, Status, kind_of


class OperationState(Enum):
    """What is known of an operation. The values are sent to clients."""

    RUNNING = "running"
    COMPLETED = "completed"
    HELD = "held"  # a person finds out how far it came
    UNDONE = "undone"  # it was carried out in part, and nothing of it remains
    UNKNOWN = "unknown"  # it may have been carried out, wholly or in part, or not at all


def standing(
    problem: Problem | type[Problem], *, record: Record | None = None
) -> OperationState | None:
    """Return what a problem says about the operation of `record`; `None` for one without a
    record.
    """
    if record is not None and problem.code == RequestMismatch.code:
        return state_of(record)
    return None if problem.operation_state is None else OperationState(problem.operation_state)


def state_of(record: Record) -> OperationState:
    """Return what a record says about its operation.

    One that failed may have been carried out in part.
    """
    if record.outcome == UNDONE:
        return OperationState.UNDONE
    if record.status is Status.COMPLETED and record.outcome not in CANCELLATIONS:
        return (
            OperationState.HELD
            if kind_of(record.outcome) is OutcomeKind.HELD
            else OperationState.COMPLETED
        )
    return OperationState.RUNNING if rules.leased(record) else OperationState.UNKNOWN
