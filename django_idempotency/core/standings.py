"""What a problem says about its operation: running · completed · held · undone · unknown.

No problem says that the operation was not applied. That a key has no record does not prove it: an earlier request may
have run while idempotency was switched off or only observed, or past a store that was down, or its record may have
expired. So a problem about no record says nothing, and none says that a new key is safe.
"""

from __future__ import annotations

from enum import Enum

from . import rules
from .records import CANCELLATIONS, UNDONE, OutcomeKind, Record, Status, kind_of


class OperationState(Enum):
    """What is known of an operation. The values are sent to clients."""

    RUNNING = "running"
    COMPLETED = "completed"
    HELD = "held"  # a person finds out how far it came
    UNDONE = "undone"  # it was carried out in part, and nothing of it remains
    UNKNOWN = "unknown"  # it may have been carried out, wholly or in part, or not at all


#: The code of a problem → what it says; `None`: it is about no record.
STANDINGS: dict[str, OperationState | None] = {
    # Refused before the record was looked up.
    "key-missing": None,
    "key-malformed": None,
    "key-too-short": None,
    "key-foreign": None,
    "key-not-issued": None,
    "key-expired": None,
    "key-ahead": None,
    "key-unsupported": None,
    "scope-required": None,
    "request-too-large": None,
    "key-unknown": None,
    # About a record. That of a mismatch says its state itself: see standing().
    "request-mismatch": OperationState.UNKNOWN,
    "in-progress": OperationState.RUNNING,
    "too-many-keys": OperationState.UNKNOWN,  # this request did nothing, but an earlier one may have
    "possible-duplicate": OperationState.UNKNOWN,  # of the other key
    "response-not-stored": OperationState.COMPLETED,
    "operation-held": OperationState.HELD,
    "key-too-old": OperationState.HELD,
    "replay-refused": OperationState.COMPLETED,
    "replay-unchecked": OperationState.COMPLETED,
    "operation-cancelled": OperationState.UNKNOWN,  # an earlier request may have done it, or a part of it
    "operation-undone": OperationState.UNDONE,
    "record-unreadable": OperationState.UNKNOWN,
    "store-unavailable": OperationState.UNKNOWN,  # this request did nothing, but an earlier one may have
    "transaction-lost": OperationState.UNKNOWN,
    "outcome-unknown": OperationState.UNKNOWN,
}


def standing(code: str, *, record: Record | None = None) -> OperationState | None:
    """Return what a problem with this code says about the operation of `record`; `None` for a code without a record."""
    return state_of(record) if code == "request-mismatch" and record is not None else STANDINGS.get(code)


def state_of(record: Record) -> OperationState:
    """Return what a record says about its operation. One that failed may have been carried out in part."""
    if record.outcome == UNDONE:
        return OperationState.UNDONE
    if record.status is Status.COMPLETED and record.outcome not in CANCELLATIONS:
        return OperationState.HELD if kind_of(record.outcome) is OutcomeKind.HELD else OperationState.COMPLETED
    return OperationState.RUNNING if rules.leased(record) else OperationState.UNKNOWN
