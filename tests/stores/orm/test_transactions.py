"""The work's own transaction is an `atomic()` block to Django and to the work, whatever happens in
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context
from typing import Any

import pytest
from django.db import (
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    OperationalError,
    connection,
    transaction,
)
from django.test.utils import CaptureQueriesContext

from django_idempotency.core.hashing import first_operation
from django_idempotency.core.records import Settlement, Status, Ticket
from django_idempotency.core.rules import Execute, Replay
from django_idempotency.errors import IdempotencyError, LostRace, TransactionLost
from django_idempotency.models import IdempotencyRecord
from django_idempotency.stores.orm import ORMStore
from testproject.payments.models import Charge, Effect
from tests.support.combining import KIND

from ..helpers import OUTCOME, Call, atomic_ticket, effects, unseen

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif("connection.vendor == 'mysql'", reason="There Django's own block is used"),
]
postgresql = pytest.mark.skipif("connection.vendor != 'postgresql'", reason="PostgreSQL's")
combined = pytest.mark.skipif(
    KIND == "postgresql, apart", reason="There Django's own block is used, too"
)
sqlite = pytest.mark.skipif("connection.vendor != 'sqlite'", reason="SQLite's")


def state() -> dict[str, Any]:
    """Return what Django knows of the transaction."""
    names = (
        "autocommit",
        "in_atomic_block",
        "needs_rollback",
        "commit_on_exit",
        "savepoint_ids",
        "closed_in_transaction",
    )
    return {name: getattr(connection, name) for name in names} | {
        "blocks": len(connection.atomic_blocks),
        "errors": connection.errors_occurred,
        "connected": connection.connection is not None,
        "open": connection.connection is not None and is_open(),
    }


def is_open() -> bool:
    driver = connection.connection
    if connection.vendor == "postgresql":
        return driver.info.transaction_status in {2, 3}  # libpq's INTRANS and INERROR
    try:
        return bool(driver.in_transaction)
    except driver.ProgrammingError:  # it is closed
        return False


def nothing() -> None:
    pass


def mark() -> None:
    transaction.set_rollback(True)


def nested() -> None:
    with transaction.atomic():
        Effect.objects.create(label="nested")


def nested_and_failed() -> None:
    with suppress(IntegrityError), transaction.atomic():
        Effect(pk=Effect.objects.get().pk).save(force_insert=True)


def nested_without_savepoint() -> None:
    with suppress(IntegrityError), transaction.atomic(savepoint=False):
        Effect(pk=Effect.objects.get().pk).save(force_insert=True)


def close() -> None:
    connection.close()


def fail() -> None:
    raise ZeroDivisionError


def interrupt() -> None:
    raise KeyboardInterrupt


def break_raw_sql() -> None:
    with suppress(DatabaseError), connection.cursor() as cursor:
        cursor.execute("SELECT no_such_column FROM payments_effect")


def break_at_commit() -> None:
    # A foreign key that is deferred to COMMIT.
    Charge.objects.create(user_id=404, amount=1, currency="inr")


def fail_after_commit() -> None:
    transaction.on_commit(fail)


HAPPENINGS = [
    *(
        nothing,
        mark,
        nested,
        nested_and_failed,
        nested_without_savepoint,
        close,
        fail,
        interrupt,
        break_raw_sql,
    ),
    *(break_at_commit, fail_after_commit),
]


@contextmanager
def ours() -> Iterator[None]:
    store, ticket = ORMStore(), atomic_ticket(key="ours")
    store.claim(ticket)
    with store.guard(ticket) as guard:
        guard.mark()
        yield
        if not guard.needs_rollback():
            assert store.commit(guard, ticket, completed(ticket))


def completed(ticket: Ticket) -> Settlement:
    return Settlement(
        status=Status.COMPLETED,
        fence=ticket.owner,
        attempt=1,
        digest=ticket.digest,
        operation=first_operation(ticket),
        outcome=OUTCOME,
    )


def traced(block: Callable[[], Any], happens: Callable[[], None]) -> list[dict[str, Any]]:
    """Return Django's state in a block before and after something happens, and after the block."""
    states = []
    with suppress(ZeroDivisionError, KeyboardInterrupt, Error, IdempotencyError), block():
        Effect.objects.create(label="work")
        states.append(state())
        try:
            happens()
        finally:
            states.append(state())
    states.append(state())
    states.append({"effects": effects(), "callbacks": len(connection.run_on_commit)})
    Effect.objects.all().delete()
    IdempotencyRecord.objects.all().delete()
    return states


@combined
@pytest.mark.parametrize("happens", HAPPENINGS)
def test_django_sees_an_atomic_block(happens: Callable[[], None]) -> None:
    """Its state on the connection is that of `atomic()` inside the block and after each way out of
    it.
    """
    assert traced(ours, happens) == traced(transaction.atomic, happens)


def test_an_interrupt_while_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal between BEGIN and the response of the database leaves no open transaction behind."""

    def interrupted(execute: Any, sql: str, *arguments: Any) -> Any:
        result = execute(sql, *arguments)
        if "FOR UPDATE" in sql or sql.startswith("SAVEPOINT"):
            raise KeyboardInterrupt
        return result

    call = Call()
    with connection.execute_wrapper(interrupted), pytest.raises(KeyboardInterrupt):
        call.open()
    assert (state()["in_atomic_block"], state()["autocommit"], is_open()) == (False, True, False)
    assert Call().run() == Execute(attempt=2, takeover=True)


def raise_after(execute: Any, sql: str, *arguments: Any) -> Any:
    """Raise an error after a statement, as a wrapper with a budget for queries does."""
    execute(sql, *arguments)
    if "COMMIT" in sql or "RELEASE" in sql:
        raise ZeroDivisionError


def test_no_wrapper_of_the_project_sees_commit() -> None:
    """Neither does one see that of `atomic()`: its error could not undo it."""
    with connection.execute_wrapper(raise_after):
        assert Call().run() == Execute(attempt=1)
    assert (effects(), Call().run()) == (1, Replay(outcome=OUTCOME, attempt=1))


def prefixed(execute: Any, sql: str, *arguments: Any) -> Any:
    """Send a statement before each, and read the last result, as django-pghistory does."""
    result = execute(f"SELECT 1; {sql}", *arguments)
    cursor = arguments[-1]["cursor"]
    while cursor.nextset():
        pass
    return result


@postgresql
@combined
def test_a_wrapper_that_adds_statements() -> None:
    """Rows are told apart by what they say, not by their place in the message."""
    with connection.execute_wrapper(prefixed):
        assert Call().run() == Execute(attempt=1)
        assert Call().run() == Replay(outcome=OUTCOME, attempt=1)
    assert effects() == 1


def tagged(execute: Any, sql: str, *arguments: Any) -> Any:
    """Say whose statement it is behind its first word, as django-querytagger does."""
    verb, _, rest = sql.partition(" ")
    return execute(f"{verb} /* shop.views.pay */ {rest}", *arguments)


def test_a_wrapper_that_tags_statements() -> None:
    """An atomic block of the view that fails is rolled back to its savepoint, and the guard goes
    on.
    """
    with connection.execute_wrapper(tagged):
        call = Call()
        call.open()
        with suppress(ZeroDivisionError), transaction.atomic():
            call.work()
            raise ZeroDivisionError
        call.work()
        call.settle()
        assert Call().run() == Replay(outcome=OUTCOME, attempt=1)
    assert effects() == 1


def test_settled_in_another_context() -> None:
    """Where the settle does not know its guard, a replaced transaction is found all the same."""
    call = Call()
    call.open()
    call.work()
    unseen("ROLLBACK")
    unseen("BEGIN")
    with pytest.raises(TransactionLost):
        Context().run(call.settle)
    assert effects() == 0
    assert Call().run() == Execute(attempt=2)


@postgresql
def test_a_serialization_failure_in_the_settle() -> None:
    """It is a conflict of the work, so the key is released, and the next request runs."""
    call = Call()
    call.open()
    call.work()
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION pg_temp.conflict() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'conflict' USING ERRCODE = '40001'; END $$;"
            "CREATE TRIGGER conflict BEFORE UPDATE ON django_idempotency_record "
            "FOR EACH ROW EXECUTE FUNCTION pg_temp.conflict()"
        )
    with pytest.raises(LostRace):
        call.settle()
    assert (effects(), call.listener.events) == (0, ["claimed", "released"])
    assert Call().run() == Execute(attempt=2)


@postgresql
@pytest.mark.parametrize("code", ["22012", "2201F", "40001"])
def test_an_error_at_commit(code: str) -> None:
    """What makes COMMIT fail is raised as it is, also if it looks like our own errors, and the key
    is released.
    """
    call = Call()
    call.open()
    call.work()
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION pg_temp.refuse() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{code}'; END $$;"
            "CREATE TEMPORARY TABLE refused (id int);"
            "CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON refused "
            "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION pg_temp.refuse();"
            "INSERT INTO refused VALUES (1)"
        )
    with pytest.raises((DataError, OperationalError)):
        call.settle()
    assert (effects(), call.listener.events) == (0, ["claimed", "released"])


@combined
def test_what_the_query_log_says() -> None:
    """The log, and whatever counts queries, has each message once, and no COMMIT that was not
    sent.
    """
    Call(atomic_ticket(key="warm")).run()
    with CaptureQueriesContext(connection) as captured:
        Call().run()
    sent = [query["sql"] for query in captured.captured_queries]
    # One of them is the work's own.
    assert len(sent) == {"postgresql": 4, "sqlite": 7}[connection.vendor]
    assert not any(sql in {"BEGIN", "COMMIT"} for sql in sent)


def test_statements_can_be_sent_apart() -> None:
    """`combine=False` is for poolers that take one statement per message; the promise does not
    depend on it.
    """
    call = Call(store=ORMStore(combine=False))
    with CaptureQueriesContext(connection) as captured:
        assert call.run() == Execute(attempt=1)
    assert not any("; " in query["sql"] for query in captured.captured_queries)
    assert captured.captured_queries[-1]["sql"] == "COMMIT"
    assert (effects(), Call().run()) == (1, Replay(outcome=OUTCOME, attempt=1))


@postgresql
def test_a_server_side_cursor_that_locks() -> None:
    """A locking `iterator()` works as in `atomic()`: its cursor ends with the transaction."""
    Effect.objects.bulk_create([Effect(label=str(n)) for n in range(5)])
    call = Call()
    call.open()
    locked = Effect.objects.select_for_update().order_by("pk").iterator(chunk_size=2)
    assert next(locked).label == "0"
    with connection.cursor() as cursor:
        cursor.execute("SELECT is_holdable FROM pg_cursors")
        assert cursor.fetchall() == [(False,)]
    assert [effect.label for effect in locked] == ["1", "2", "3", "4"]
    call.settle()
    assert Call().run() == Replay(outcome=OUTCOME, attempt=1)


@postgresql
def test_the_modes_of_the_connection() -> None:
    """The transaction has the isolation level that OPTIONS gives the driver."""
    from django.db.backends.postgresql.psycopg_any import IsolationLevel

    connection.ensure_connection()
    driver = connection.connection
    driver.isolation_level = IsolationLevel.REPEATABLE_READ
    try:
        call = Call()
        call.open()
        with connection.cursor() as cursor:
            cursor.execute("SHOW transaction_isolation")
            assert cursor.fetchone() == ("repeatable read",)
        call.settle()
    finally:
        driver.isolation_level = None


@sqlite
def test_a_mode_that_needs_its_own_begin() -> None:
    """A project that takes its transactions EXCLUSIVE has them so under a key."""
    connection.ensure_connection()
    before, connection.transaction_mode = connection.transaction_mode, "EXCLUSIVE"  # type: ignore[attr-defined]
    try:
        with CaptureQueriesContext(connection) as captured:
            assert Call().run() == Execute(attempt=1)
    finally:
        connection.transaction_mode = before  # type: ignore[attr-defined]
    assert "BEGIN EXCLUSIVE" in [query["sql"] for query in captured.captured_queries]
