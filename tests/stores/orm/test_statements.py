"""What each verb sends to the database, in number and shape (design 5).

One more trip breaks a promise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import Error, connection, transaction
from django.db.models.sql.compiler import SQLCompiler, SQLInsertCompiler, SQLUpdateCompiler
from django.test.utils import CaptureQueriesContext

from django_idempotency.core.conclusions import WorkResult
from django_idempotency.core.rules import Busy, Execute, Mismatch, Replay
from django_idempotency.stores.orm import ORMStore
from django_idempotency.testing.tickets import make_ticket
from tests.support.combining import KIND

from ..helpers import OUTCOME, Call, atomic_ticket

pytestmark = pytest.mark.django_db(transaction=True)

#: What a call does → the statements that it costs in addition to its own work.
FIRST_ATOMIC = {
    # One trip each: what is joined by semicolons goes in one message.
    "postgresql": [
        "SET; INSERT; SELECT",
        "BEGIN; SELECT; WITH FOR UPDATE SKIP LOCKED",
        "SELECT; WITH; COMMIT",
    ],
    "postgresql, apart": ["INSERT", "BEGIN", "SELECT FOR UPDATE SKIP LOCKED", "UPDATE", "COMMIT"],
    # A savepoint is the mark by which the settle recognises the transaction; on PostgreSQL it
    # compares the id.
    "mariadb": [
        "INSERT",
        "BEGIN",
        "SELECT FOR UPDATE WAIT 1",
        "SAVEPOINT",
        "RELEASE",
        "UPDATE",
        "COMMIT",
    ],
    # It reads first, and nothing but two SETs bounds how long an INSERT waits for a row.
    "mysql": [
        *("SELECT", "SET", "INSERT FOR SHARE NOWAIT", "SET", "SELECT"),
        *("BEGIN", "SELECT FOR UPDATE", "SAVEPOINT", "RELEASE", "UPDATE", "COMMIT"),
    ],
    # It reads first, since an insert queues; the UPDATE takes the write lock before any read makes
    # a snapshot. The savepoint is the transaction.
    "sqlite": ["SELECT", "INSERT", "SAVEPOINT", "UPDATE", "UPDATE", "RELEASE"],
}
#: In a caller's transaction, from the lock on.
FIRST_INSIDE = {
    "postgresql": ["SAVEPOINT", "SELECT FOR UPDATE SKIP LOCKED", "UPDATE", "RELEASE"],
    "postgresql, apart": ["SAVEPOINT", "SELECT FOR UPDATE SKIP LOCKED", "UPDATE", "RELEASE"],
    "mariadb": ["SAVEPOINT", "SELECT FOR UPDATE WAIT 1", "UPDATE", "RELEASE"],
    "mysql": ["SAVEPOINT", "SELECT FOR UPDATE", "UPDATE", "RELEASE"],
    "sqlite": ["SAVEPOINT", "UPDATE", "UPDATE", "RELEASE"],
}
FIRST_LEASE = {
    "postgresql": ["SET; INSERT; SELECT", "SET; UPDATE"],
    "postgresql, apart": ["INSERT", "UPDATE"],
    "mariadb": ["INSERT", "UPDATE"],
    "mysql": ["SELECT", "SET", "INSERT FOR SHARE NOWAIT", "SET", "SELECT", "UPDATE"],
    "sqlite": ["SELECT", "INSERT", "UPDATE"],
}
KNOWN_KEY = {
    "postgresql": ["SET; INSERT; SELECT"],
    "postgresql, apart": ["INSERT", "SELECT"],
    "mariadb": ["INSERT", "SELECT"],
    "mysql": ["SELECT"],
    "sqlite": ["SELECT"],
}
RELEASED = {
    "postgresql": ["BEGIN; SELECT; WITH FOR UPDATE SKIP LOCKED", "SELECT; WITH; COMMIT"],
    "postgresql, apart": ["BEGIN", "SELECT FOR UPDATE SKIP LOCKED", "UPDATE", "COMMIT"],
    "mariadb": ["BEGIN", "SELECT FOR UPDATE WAIT 1", "UPDATE", "COMMIT"],
    "mysql": ["BEGIN", "SELECT FOR UPDATE", "UPDATE", "COMMIT"],
    "sqlite": ["SAVEPOINT", "UPDATE", "UPDATE", "RELEASE"],
}


class Sent(list[str]):
    """The statements of a block, each as its verb and its lock."""

    def __init__(self) -> None:
        self.raw: list[str] = []


@contextmanager
def sent() -> Iterator[Sent]:
    statements, failed = Sent(), []

    def note(execute: Any, sql: str, *arguments: Any) -> Any:
        try:
            return execute(sql, *arguments)
        except Error:
            failed.append(sql)
            raise

    with CaptureQueriesContext(connection) as captured:
        connection.execute_wrappers.append(note)
        try:
            yield statements
        finally:
            # execute_wrapper() would remove the last one: that of a call that is still open.
            connection.execute_wrappers.remove(note)
    for query in captured.captured_queries:
        # PyMySQL forgets a statement that failed.
        sql = query["sql"] if query["sql"] != "None" else failed.pop(0)
        statements.raw.append(sql)
        statements.append("; ".join(map(shape, sql.split("; "))))


def shape(sql: str) -> str:
    sql = re.sub(r"^SET STATEMENT .+? FOR ", "", sql)
    verb, lock = (
        re.match(r"\w+", sql),
        re.search(r"FOR (?:UPDATE|SHARE)(?: SKIP LOCKED| NOWAIT| WAIT 1)?", sql),
    )
    assert verb is not None
    return " ".join(filter(None, [verb[0], lock and lock[0].strip()]))


@pytest.fixture(autouse=True)
def connected(db: None) -> None:
    """Have a connection and the store's statements built, so that tests count neither."""
    Call(atomic_ticket(key="warm")).run()


def test_first_request_atomic() -> None:
    """It sends claim, lock and settle, BEGIN and COMMIT, and at most a light statement at each end
    of the work.
    """
    call = Call()
    with sent() as statements:
        call.open()
        call.settle()
    assert statements == FIRST_ATOMIC[KIND]


def test_first_request_in_a_callers_transaction() -> None:
    """There is one savepoint around the claim, if it needs one, and one around lock, work and
    settle.
    """
    call = Call()
    with transaction.atomic(), sent() as statements:
        call.open()
        call.settle()
    assert statements.count("SAVEPOINT") <= 2
    assert statements[-4:] == FIRST_INSIDE[KIND]


def test_first_request_lease() -> None:
    """It sends claim and settle."""
    call = Call(make_ticket())
    with sent() as statements:
        call.open()
        call.settle()
    assert statements == FIRST_LEASE[KIND]


@pytest.mark.parametrize("make", [make_ticket, atomic_ticket], ids=["lease", "atomic"])
def test_known_keys(make: Callable[..., Any]) -> None:
    """A replay or a mismatch takes at most two statements, and opens no transaction."""
    Call(make()).run()
    replayed, changed = Call(make()), Call(make(body=b"other"))
    with sent() as statements:
        assert replayed.open() == Replay(outcome=OUTCOME, attempt=1)
    assert statements == KNOWN_KEY[KIND]
    with sent() as statements:
        assert changed.open() == Mismatch()
    assert statements == KNOWN_KEY[KIND]


def test_busy() -> None:
    """While the lease lives, a duplicate costs no more than a replay."""
    ORMStore().claim(atomic_ticket(lease=30))
    duplicate = Call()
    with sent() as statements:
        assert isinstance(duplicate.open(), Busy)
    assert statements == KNOWN_KEY[KIND]


def test_takeover_lease() -> None:
    """It sends a read, one compare-and-set, and a read of the new record."""
    Call(make_ticket(lease=0)).open()
    with sent() as statements:
        assert Call(make_ticket()).open() == Execute(attempt=2, takeover=True)
    takes = {"postgresql": ["SET; UPDATE"], "mysql": ["SET", "UPDATE", "SET"]}.get(KIND, ["UPDATE"])
    assert statements == [*KNOWN_KEY[KIND], *takes, *KNOWN_KEY[KIND]]


def test_takeover_atomic() -> None:
    """It is written under the row's lock and committed, and then held like a claim of ours;
    SQLite's lock is its UPDATE.
    """
    ORMStore().claim(atomic_ticket())
    call = Call()
    with sent() as statements:
        assert isinstance(call.open(), Execute)
    lock = {
        "postgresql": [
            "BEGIN; SELECT; WITH FOR UPDATE SKIP LOCKED",
            "SELECT; WITH; COMMIT",
            "BEGIN; SELECT; WITH FOR UPDATE SKIP LOCKED",
        ],
        "postgresql, apart": [
            *("BEGIN", "SELECT FOR UPDATE SKIP LOCKED", "UPDATE", "COMMIT"),
            *("BEGIN", "SELECT FOR UPDATE SKIP LOCKED"),
        ],
        "mariadb": [
            *("BEGIN", "SELECT FOR UPDATE SKIP LOCKED", "UPDATE", "COMMIT"),
            *("BEGIN", "SELECT FOR UPDATE WAIT 1", "SAVEPOINT"),
        ],
        "mysql": [
            *("BEGIN", "SELECT FOR UPDATE SKIP LOCKED", "UPDATE", "COMMIT"),
            *("BEGIN", "SELECT FOR UPDATE", "SAVEPOINT"),
        ],
        "sqlite": [
            *("PRAGMA", "PRAGMA", "SAVEPOINT", "UPDATE", "PRAGMA", "UPDATE", "RELEASE"),
            *("SAVEPOINT", "UPDATE"),
        ],
    }[KIND]
    assert statements == [*KNOWN_KEY[KIND], *lock]
    call.settle()


def test_a_failed_call_atomic() -> None:
    """It sends a rollback, then a release in a separate transaction."""
    call = Call()
    call.open()
    with sent() as statements:
        call.settle(WorkResult.FAILED)
    assert statements == ["ROLLBACK", *RELEASED[KIND]]


def test_no_compiling_on_the_hot_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """No ORM query is compiled between claim and COMMIT: that costs three times the round trip."""

    def compiled(*_: Any, **__: Any) -> Any:
        raise AssertionError("the ORM compiled a query on the hot path")

    for compiler in (SQLCompiler, SQLInsertCompiler, SQLUpdateCompiler):
        monkeypatch.setattr(compiler, "as_sql", compiled)
    for make in (make_ticket, atomic_ticket):
        for ended in (WorkResult.FAILED, WorkResult.KEPT):
            call = Call(make(key=str(make)))
            assert isinstance(call.open(), Execute)
            call.settle(ended)
        assert isinstance(Call(make(key=str(make))).open(), Replay)


def test_an_open_record_is_updated_in_place() -> None:
    """Settling changes no indexed column, so PostgreSQL can update in place (HOT)."""
    for ended in (WorkResult.KEPT, WorkResult.DROPPED):
        call = Call(make_ticket(key=str(ended)))
        call.open()
        with sent() as statements:
            call.settle(ended)
        assert "purge_at" not in statements.raw[0].partition("WHERE")[0]


postgresql = pytest.mark.skipif(
    "connection.vendor != 'postgresql'", reason="PostgreSQL counts its writers"
)


@postgresql
def test_a_known_key_writes_nothing() -> None:
    """A claim that finds a record takes no transaction id: no WAL, no flush."""
    done = make_ticket()
    Call(done).run()
    assert writes(make_ticket()) is False
    assert writes(make_ticket(key="new")) is True  # proves that we would see it


def writes(ticket: Any) -> bool:
    """Repeat the statements of an autocommit claim inside a transaction that we can ask."""
    bound: list[tuple[str, Any]] = []

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        bound.append((sql, params))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(note):
        new = ORMStore().claim(ticket).owner == ticket.owner
    if new:  # undo it: the question is what the claim of a new key does
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM django_idempotency_record WHERE id = %s", [ticket.id])
    with transaction.atomic(), connection.cursor() as cursor:
        for sql, params in bound:
            cursor.execute(sql, params)
        cursor.execute("SELECT txid_current_if_assigned()")
        return cursor.fetchone()[0] is not None


@postgresql
@pytest.mark.parametrize(
    ("make", "durable_claims", "asynchronous"),
    [
        (make_ticket, True, False),
        (make_ticket, False, False),
        (atomic_ticket, True, False),
        (atomic_ticket, False, True),
    ],
)
def test_asynchronous_commit(
    make: Callable[..., Any], durable_claims: bool, asynchronous: bool
) -> None:
    """A claim is as durable as any COMMIT; only one of `atomic` is not, where the project says
    so.
    """
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit = on")  # it is off in the tests' databases
        with sent() as statements:
            record = ORMStore(durable_claims=durable_claims).claim(make())
        assert record.durable is not asynchronous
        assert ("synchronous_commit" in statements.raw[0]) is asynchronous
        assert "lock_timeout" in statements.raw[0]
        cursor.execute(
            "SELECT current_setting('synchronous_commit'), current_setting('lock_timeout')"
        )
        assert cursor.fetchone() == ("on", "0")
        cursor.execute("RESET synchronous_commit")


@pytest.mark.skipif("connection.vendor != 'sqlite'", reason="SQLite's setting")
def test_patience_returns() -> None:
    """A takeover does not wait, and then restores the connection's patience."""
    with connection.cursor() as cursor:
        before = cursor.execute("PRAGMA busy_timeout").fetchone()
        ORMStore().claim(atomic_ticket())
        assert isinstance(Call().run(), Execute)
        assert cursor.execute("PRAGMA busy_timeout").fetchone() == before
