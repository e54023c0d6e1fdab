"""A row as a record. No database."""

from __future__ import annotations

import pytest

from django_idempotency.admin.rows import outcome_of
from django_idempotency.core.records import MISSING, Outcome
from django_idempotency.models import IdempotencyRecord


@pytest.mark.parametrize("headers", ["", "nonsense", "{}", "[1]", '[["a"]]', "null"])
def test_headers_that_nobody_can_read(headers: str) -> None:
    """A row that other code wrote, with unreadable headers, is not an error page."""
    row = IdempotencyRecord(response_status=200, response_headers=headers, response_body=b"x")
    assert outcome_of(row) == Outcome(status=200, body=b"x")


def test_no_response_no_body_and_an_empty_one() -> None:
    """No response, no body and an empty body are three different things."""
    assert outcome_of(IdempotencyRecord(response_status=None)) is None
    for stored, body in ((None, MISSING), (b"", b"")):
        row = IdempotencyRecord(response_status=204, response_headers='[["A", "b"]]', response_body=stored)
        assert outcome_of(row) == Outcome(status=204, headers=(("A", "b"),), body=body)
