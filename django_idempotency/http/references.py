"""Which operation a problem is about: a reference to quote to support, and what is known of it."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from django.http import HttpRequest

from .. import conf
from ..core.hashing import operation_ref
from ..core.standings import OperationState, standing
from ..engine.operation import Operation
from ..errors import Problem

#: On a request: the operation that it is about.
_OPERATION = "_idempotency_operation"
#: An example for schemas.
EXAMPLE = "op_a4eascqlbqgq4dyqcejbgfavcylrqgi2dmob2hq7"


class _Noted(NamedTuple):
    record: UUID
    operation: Operation | None


def note_operation(request: HttpRequest, record: UUID, operation: Operation | None = None) -> None:
    """Note on a request that it is about this record, claimed by this operation."""
    setattr(request, _OPERATION, _Noted(record, operation))


def operation_of(request: HttpRequest) -> Operation | None:
    """Return the operation that a request is about, if it has claimed a record."""
    noted: _Noted | None = getattr(request, _OPERATION, None)
    return None if noted is None else noted.operation


def describe(problem: Problem, request: HttpRequest) -> None:
    """Add to a problem what it says about the operation of a request, if that is known. Computed for problems only."""
    noted: _Noted | None = getattr(request, _OPERATION, None)
    if noted is None:
        return
    record = None if noted.operation is None else noted.operation.record
    state = standing(problem, record=record)
    if state is not None:
        problem.extensions |= _members(reference_to(noted.record), state)


def example_of(kind: type[Problem]) -> Problem:
    """Return a problem for a schema."""
    problem, state = kind(), standing(kind)
    if state is not None:
        problem.extensions |= _members(EXAMPLE, state)
    return problem


def _members(reference: str, state: OperationState) -> dict[str, str | int]:
    """Nothing proves that a new key is safe: see `core.standings`."""
    return {"operation_ref": reference, "operation_state": state.value, "safe_new_key": False}


def reference_to(record: UUID) -> str:
    """Return the reference to a record."""
    return operation_ref(conf.derive_secret(), record)
