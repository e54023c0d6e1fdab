"""What a problem says about its operation: its state, and whether a new key is safe.

    operation_state   running · completed · held · not_applied · unknown
    safe_new_key      true only if it is proven that nothing of the operation was applied under its key

A problem about no record says neither: an earlier request with the same key may have run under other settings.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from . import rules
from .records import CANCELLATION, OutcomeKind, Record, Status, kind_of


class OperationState(Enum):
    """What is known of an operation. The values are sent to clients."""

    RUNNING = "running"
    COMPLETED = "completed"
    HELD = "held"  # a person finds out how far it came
    NOT_APPLIED = "not_applied"  # proven: nothing of it was carried out under its key
    UNKNOWN = "unknown"  # it may have been carried out, wholly or in part


class Standing(NamedTuple):
    """What a problem says about its operation."""

    state: OperationState
    safe_new_key: bool = False


#: The code of a problem → what it says; `None`: it is about no record.
STANDINGS: dict[str, Standing | None] = {
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
    "nothing-guarded": None,
    "key-unknown": None,
    # About a record. That of a mismatch says its state itself: see standing().
    "request-mismatch": Standing(OperationState.UNKNOWN),
    "in-progress": Standing(OperationState.RUNNING),
    "too-many-keys": Standing(OperationState.NOT_APPLIED),  # but a client that makes new keys may have repeated it
    "possible-duplicate": Standing(OperationState.UNKNOWN),  # of the other key
    "response-not-stored": Standing(OperationState.COMPLETED),
    "operation-held": Standing(OperationState.HELD),
    "replay-refused": Standing(OperationState.COMPLETED),
    "replay-unchecked": Standing(OperationState.COMPLETED),
    "operation-cancelled": Standing(OperationState.UNKNOWN),  # an earlier attempt may have done a part of it
    "operation-finished": Standing(OperationState.COMPLETED),
    "record-unreadable": Standing(OperationState.UNKNOWN),
    "store-unavailable": Standing(OperationState.UNKNOWN),  # this request did nothing, but an earlier one may have
    "transaction-lost": Standing(OperationState.UNKNOWN),
    "outcome-unknown": Standing(OperationState.UNKNOWN),
}

#: What a problem says that is raised with a proof: see `Problem.unapplied`.
UNAPPLIED = Standing(OperationState.NOT_APPLIED, safe_new_key=True)


def standing(code: str, *, unapplied: bool = False, record: Record | None = None) -> Standing | None:
    """Return what a problem with this code says about the operation of `record`; `None` for a code without a record.

    `unapplied`: is it proven that nothing of the operation was applied?
    """
    found = STANDINGS.get(code)
    if found is None:
        return None
    if unapplied:
        return UNAPPLIED
    return Standing(state_of(record)) if code == "request-mismatch" and record is not None else found


def state_of(record: Record) -> OperationState:
    """Return what a record says about its operation. One that failed may have been carried out in part."""
    if record.status is Status.COMPLETED and record.outcome != CANCELLATION:
        return OperationState.HELD if kind_of(record.outcome) is OutcomeKind.HELD else OperationState.COMPLETED
    return OperationState.RUNNING if rules.leased(record) else OperationState.UNKNOWN
