"""Which operation a problem is about: a reference to quote to support, and what is known of it."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from django.http import HttpRequest

from .. import conf
from ..core.hashing import operation_ref
from ..core.standings import standing
from ..engine.operation import Operation
from ..errors import Problem

#: On a request: the operation that it is about.
_OPERATION = "_idempotency_operation"
#: An example for schemas.
EXAMPLE = "op_a4eascqlbqgq4dyqcejbgfavcylrqgi2dmob2hq7"


class _Noted(NamedTuple):
    record: UUID
    operation: Operation | None
    durable: bool


def note_operation(
    request: HttpRequest, record: UUID, operation: Operation | None = None, *, durable: bool = False
) -> None:
    """Note on a request that it is about this record, claimed by this operation.

    `durable`: has no earlier request with the key run without leaving a record that is still there?
    """
    setattr(request, _OPERATION, _Noted(record, operation, durable))


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
    found = standing(problem.code, unapplied=problem.unapplied and noted.durable, record=record)
    if found is not None:
        problem.extensions |= {
            "operation_ref": reference_to(noted.record),
            "operation_state": found.state.value,
            "safe_new_key": found.safe_new_key,
        }


def example_of(kind: type[Problem]) -> Problem:
    """Return a problem for a schema."""
    problem, found = kind(), standing(kind.code)
    if found is not None:
        members = {"operation_state": found.state.value, "safe_new_key": found.safe_new_key}
        problem.extensions |= {"operation_ref": EXAMPLE, **members}
    return problem


def reference_to(record: UUID) -> str:
    """Return the reference to a record."""
    return operation_ref(conf.derive_secret(), record)
