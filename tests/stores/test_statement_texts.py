"""What a statement does, as far as its text tells."""

from __future__ import annotations

from itertools import chain

import pytest

from django_idempotency.stores.statement_texts import LockWatch, is_write, kept_until_commit, text_of


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


TAKE, RELEASE = "SELECT pg_advisory_lock(%s)", "SELECT pg_advisory_unlock(%s)"
WRITE, SAVE, UNDO = "INSERT INTO note VALUES (1)", 'SAVEPOINT "s1"', 'ROLLBACK /* by Django */ TO SAVEPOINT "s1"'


@pytest.mark.parametrize(
    ("statements", "refused"),
    [
        ([TAKE, WRITE, RELEASE], True),
        ([TAKE, "SELECT 1", RELEASE], False),
        ([WRITE, TAKE, RELEASE], False),  # not under it
        ([WRITE, RELEASE], True),  # taken before the guard began
        ([TAKE, TAKE, WRITE, RELEASE], True),
        ([TAKE, WRITE, TAKE, "SELECT 1", RELEASE], True),  # whichever of the two it is
        ([TAKE, SAVE, WRITE, UNDO, RELEASE], False),
        ([TAKE, WRITE, SAVE, UNDO, RELEASE], True),
        ([TAKE, RELEASE, TAKE, WRITE, RELEASE], True),
        (["SELECT GET_LOCK('seven', 1)", WRITE, "DO RELEASE_LOCK('seven')"], True),
        (["SELECT pg_advisory_xact_lock(7)", WRITE, "SELECT 1"], False),
        (
            [WRITE, "INSERT INTO note VALUES ('" + "x" * 400 + " pg_advisory_unlock(1)')"],
            False,
        ),  # only what it begins with
    ],
    ids=chain(map(str, range(12))),
)
def test_a_lock_released_too_early(statements: list[str], refused: bool) -> None:
    """Only one under which something is written that is still there."""
    watch, savepoints, seen = LockWatch(), list[str](), list[bool]()
    for statement in statements:
        seen.append(watch.note(statement, savepoints))
        savepoints = {SAVE: ["s1"], UNDO: []}.get(statement, savepoints)
    assert seen == [False] * (len(statements) - 1) + [refused]


def test_a_write_in_a_block_without_a_savepoint() -> None:
    """Django has no name for it."""
    watch = LockWatch()
    assert [watch.note(WRITE, [None]), watch.note(UNDO, [None])] == [False, False]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("SELECT pg_advisory_unlock(%s)", "pg_try_advisory_xact_lock(%s)"),
        ("select PG_ADVISORY_UNLOCK_SHARED (1, 2)", "pg_try_advisory_xact_lock_shared(1, 2)"),
        ("SELECT pg_advisory_unlock(1), pg_advisory_unlock(2)", None),
        ("SELECT pg_advisory_unlock_all()", None),
        ("WITH a AS (SELECT pg_advisory_unlock(1)) SELECT 1", None),
        ("SELECT RELEASE_LOCK('seven')", None),
    ],
)
def test_a_lock_is_kept_until_the_commit(text: str, kept: str | None) -> None:
    """Only a plain release of one lock of PostgreSQL's."""
    found = kept_until_commit(text)
    assert (found is None) if kept is None else (found is not None and found.endswith(kept))
