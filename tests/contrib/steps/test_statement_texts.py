"""What a statement does, as far as its text tells."""

from __future__ import annotations

import pytest

from django_idempotency.contrib.steps.actions import is_write, text_of


@pytest.mark.parametrize(
    ("text", "writes"),
    [
        ("INSERT INTO note VALUES (1)", True),
        ("/* traced */ update note SET label = 'x'", True),
        ("WITH gone AS (DELETE FROM note RETURNING id) SELECT * FROM gone", True),
        ("WITH one AS (SELECT 1) UPDATE note AS n SET label = 'x'", True),
        ("WITH one AS (SELECT 1) SELECT * FROM note FOR UPDATE", False),
        ("SELECT 'INSERT INTO note'", False),
    ],
)
def test_it_writes(text: str, writes: bool) -> None:
    """A WITH is looked through; a row lock is not a write."""
    assert is_write(text) is writes


def test_bytes() -> None:
    assert text_of(b"SELECT 1", None) == "SELECT 1"
