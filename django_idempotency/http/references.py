"""Which operation a problem is about: a reference to quote to support, and what is known of it."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpRequest

from .. import conf
from ..core.hashing import operation_ref
from ..core.standings import OperationState, standing
from ..errors import Problem
from .exchange import exchange_of, noted_of

#: An example for schemas.
EXAMPLE = "op_a4eascqlbqgq4dyqcejbgfavcylrqgi2dmob2hq7"


def note_record(request: HttpRequest, record: UUID) -> None:
    """Note on a request that it is about this record, which it has not claimed."""
    exchange = exchange_of(request)
    exchange.record, exchange.operation = record, None


def describe(problem: Problem, request: HttpRequest) -> None:
    """Add to a problem what it says about the operation of a request, if that is known. Computed for problems only."""
    exchange = noted_of(request)
    if exchange is None or exchange.record is None:
        return
    record = None if exchange.operation is None else exchange.operation.record
    state = standing(problem, record=record)
    if state is not None:
        problem.extensions |= _members(reference_to(exchange.record), state)


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
