"""What a problem says about its operation, as a table; and the reference to it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from django_idempotency.core.hashing import operation_ref, record_of_ref
from django_idempotency.core.records import CANCELLATION, UNDONE, Outcome, OutcomeKind, Status
from django_idempotency.core.standings import OperationState, standing, state_of
from django_idempotency.errors import (
    InProgress,
    KeyMissing,
    OperationCancelled,
    Problem,
    RequestMismatch,
    TooManyKeys,
)

from .test_rules import record

RUNNING, COMPLETED, HELD = OperationState.RUNNING, OperationState.COMPLETED, OperationState.HELD
UNKNOWN = OperationState.UNKNOWN


def test_nothing_is_said_not_to_have_been_applied() -> None:
    """Not even by a flood or a cancellation that meets no record: an earlier request may have left
    none.
    """
    assert {state.value for state in OperationState} == {
        "running",
        "completed",
        "held",
        "undone",
        "unknown",
    }
    assert standing(OperationCancelled) is standing(TooManyKeys()) is UNKNOWN


def test_a_problem_about_no_record_says_nothing() -> None:
    """An earlier request with the key may have run under other settings."""

    class OfTheProject(Problem):
        status, code, title = 409, "of-the-project", "A project's own"

    assert {
        standing(problem, record=record())
        for problem in (KeyMissing(), OfTheProject(), OfTheProject)
    } == {None}


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"status": Status.RUNNING, "lease": timedelta(seconds=1)}, RUNNING),
        ({"status": Status.RUNNING}, UNKNOWN),  # its owner has not been heard of
        ({"status": Status.FREE}, UNKNOWN),  # a failed attempt may have done a part
        ({"status": Status.COMPLETED}, COMPLETED),
        ({"status": Status.COMPLETED, "outcome": None}, COMPLETED),  # unreadable
        ({"status": Status.COMPLETED, "outcome": OutcomeKind.HELD.outcome()}, HELD),
        ({"status": Status.COMPLETED, "outcome": CANCELLATION}, UNKNOWN),
        ({"status": Status.COMPLETED, "outcome": UNDONE}, OperationState.UNDONE),
    ],
)
def test_a_mismatch_says_what_the_record_says(
    fields: dict[str, Any], state: OperationState
) -> None:
    """The other problems have a state of their own, whatever the record says."""
    assert state_of(record(**fields)) is state
    assert standing(RequestMismatch(), record=record(**fields)) is state
    assert standing(InProgress(), record=record(**fields)) is RUNNING


def test_a_mismatch_without_a_record() -> None:
    """It was not read."""
    assert standing(RequestMismatch()) is UNKNOWN


ID = UUID("a5a5a5a5-0000-5000-8000-00000000ffff")


def test_a_reference_leads_to_its_record() -> None:
    """However it is typed, and after the secret has been rotated."""
    ref = operation_ref("secret", ID)
    assert (len(ref), ref[:3], ref) == (43, "op_", operation_ref(b"secret", ID))
    for typed in (ref, ref.upper(), f" {ref} ", ref[3:]):
        assert record_of_ref(["new", "secret"], typed) == ID


def test_a_reference_cannot_be_made_without_the_secret() -> None:
    """Who knows a scope and a key knows the id of their record, and not the reference."""
    ref = operation_ref("secret", ID)
    forged = [
        operation_ref("guess", ID),
        ref[:-1] + ("a" if ref[-1] != "a" else "b"),
        ref[:27],
        ref[:-8],
        "op_",
        "é",
        str(ID),
    ]
    assert [record_of_ref(["secret"], each) for each in forged] == [None] * len(forged)


def test_an_outcome_is_not_taken_for_a_cancellation() -> None:
    """Another 409 is a response."""
    refused = Outcome(status=409, headers=(), body=b"")
    assert state_of(record(status=Status.COMPLETED, outcome=refused)) is COMPLETED
