"""Connections that break: before the work, during it, and in COMMIT."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from django.db import (
    DatabaseError,
    IntegrityError,
    OperationalError,
    connection,
    connections,
    transaction,
)

from django_idempotency.core.conclusions import WorkResult
from django_idempotency.core.records import Settlement, Status, Ticket
from django_idempotency.core.rules import Execute, Replay
from django_idempotency.engine import threads
from django_idempotency.engine.deferring import Deferring
from django_idempotency.errors import (
    OutcomeUnknown,
    StoreRefused,
    StoreUnavailable,
    TransactionLost,
    WritesRolledBack,
)
from django_idempotency.instrumentation.observer import Observer
from django_idempotency.stores.base import Guard
from django_idempotency.stores.orm import ORMStore
from django_idempotency.stores.orm.dialects.postgresql import PostgreSQLTransaction
from django_idempotency.stores.orm.dialects.sqlite import SQLiteTransaction
from django_idempotency.stores.orm.dialects.transactions import WorkTransaction
from django_idempotency.testing.tickets import make_ticket
from testproject.payments.models import Effect
from tests.support.combining import KIND

from .helpers import (
    OUTCOME,
    Call,
    atomic_ticket,
    connection_id,
    effects,
    kill,
    not_sqlite,
    row,
    unseen,
    until_gone,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def nobody_serves(db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Point new connections to a place without a database."""
    nowhere = (
        {"NAME": "/no/such/folder/db"}
        if connection.vendor == "sqlite"
        else {"HOST": "127.0.0.1", "PORT": "1"}
    )
    leave()
    with monkeypatch.context() as patch:
        for name, value in nowhere.items():
            patch.setitem(connection.settings_dict, name, value)
        yield
        leave()


def leave() -> None:
    """Close the connection, and a pool that may have others."""
    connection.close()
    if connection.settings_dict["OPTIONS"].get("pool"):
        connection.close_pool()  # type: ignore[attr-defined]


@pytest.mark.parametrize("ticket", [make_ticket(), atomic_ticket()], ids=["lease", "atomic"])
def test_no_database(nobody_serves: None, ticket: Ticket) -> None:
    """Every verb reports a database that does not respond, and nothing ran."""
    call = Call(ticket)
    with pytest.raises(StoreUnavailable) as raised:
        call.open()
    assert isinstance(raised.value.__cause__, OperationalError)
    assert (call.operation.run, call.listener.events) == (None, [])
    with pytest.raises(StoreUnavailable):
        asyncio.run(threads.in_thread_of(call.store, call.store.claim, ticket))
    with pytest.raises(StoreUnavailable):
        call.store.purge(limit=1)


@not_sqlite
def test_killed_before_the_guard() -> None:
    """A connection that breaks before the lock runs nothing, and the next claim uses a new one."""

    class Killed(ORMStore):
        def claim(self, ticket: Ticket) -> Any:
            record = super().claim(ticket)
            kill(connection_id())
            return record

    call = Call(store=Killed())
    with pytest.raises(StoreUnavailable):
        call.open()
    assert call.operation.run is None
    assert Call().run() == Execute(attempt=2, takeover=True)


@not_sqlite
@pytest.mark.parametrize("noticed", [True, False], ids=["the view fails", "the view has answered"])
def test_killed_in_the_work(noticed: bool) -> None:
    """The writes are gone, so no response is remembered, and the key is free for the next run."""
    call = Call()
    call.open()
    call.work()
    kill(connection_id())
    if noticed:
        with pytest.raises(DatabaseError):
            call.work()
        call.settle(WorkResult.FAILED)
    else:  # between the view's last statement and ours: its 201 must not outlive its writes
        with pytest.raises(StoreUnavailable):
            call.settle(WorkResult.KEPT)
    assert (effects(), row(call.ticket).status) == (0, Status.FREE)
    assert call.listener.events == ["claimed", "released"]
    assert Call().run() == Execute(attempt=2)
    assert effects() == 1


@not_sqlite
def test_killed_in_the_work_and_swallowed() -> None:
    """A view that catches the error and still returns 201 has lost its writes: no 201 without
    them.
    """
    call = Call()
    call.open()
    call.work()
    kill(connection_id())
    with pytest.raises(DatabaseError), transaction.atomic(savepoint=False):
        call.work()
    assert call.operation._guard.needs_rollback()
    with pytest.raises(StoreUnavailable):
        call.settle(WorkResult.KEPT)
    assert (effects(), row(call.ticket).status) == (0, Status.FREE)
    assert call.listener.events == ["claimed", "released"]


@pytest.mark.skipif("connection.vendor != 'postgresql'", reason="The setting is PostgreSQL's")
@pytest.mark.parametrize("limit", ["idle_in_transaction_session_timeout", "transaction_timeout"])
@pytest.mark.parametrize("marked", [False, True], ids=["answers", "gives up, and answers"])
def test_cut_for_being_slow(marked: bool, limit: str) -> None:
    """A server that ends an idle or a long transaction is not a takeover: it is a lost transaction,
    and the next call runs.
    """
    if limit == "transaction_timeout" and connection.pg_version < 170000:  # type: ignore[attr-defined]
        pytest.skip("PostgreSQL has it since 17.")
    call = Call()
    call.open()
    call.work()
    with connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL {limit} = '20ms'")
    until_gone(connection.connection.info.backend_pid)
    if marked:
        call.operation.set_rollback()
    with pytest.raises(TransactionLost):
        call.settle()
    assert (effects(), row(call.ticket).status) == (0, Status.FREE)
    assert call.listener.events == ["claimed", "released"]
    assert isinstance(call.listener.errors[-1], TransactionLost)
    assert Call().run() == Execute(attempt=2)


@pytest.mark.skipif(
    "connection.vendor != 'postgresql'", reason="Elsewhere no statement aborts the transaction"
)
def test_an_error_that_was_mended_excuses_no_later_one() -> None:
    """An error of the driver's own cursor is no less one, and is not the one that the work handled
    before it.
    """
    call = Call()
    call.open()
    call.work()
    with suppress(IntegrityError), transaction.atomic():
        Effect.objects.create(pk=Effect.objects.get().pk)
    deadlock = "DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40P01'; END $$"
    with suppress(Exception):
        unseen(deadlock)
    with pytest.raises(WritesRolledBack) as caught:
        call.settle()
    assert caught.value.__cause__ is None
    assert (effects(), row(call.ticket).status) == (0, Status.FREE)


#: On PostgreSQL: the COMMIT of this transaction ends its own connection. Rolled back with it.
DIE_AT_COMMIT = """
    CREATE FUNCTION pg_temp.die() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$;
    CREATE TEMPORARY TABLE deadly (id int);
    CREATE CONSTRAINT TRIGGER die AFTER INSERT ON deadly
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION pg_temp.die();
    INSERT INTO deadly VALUES (1)
"""


class KilledBeforeCommit(ORMStore):
    """Loses its connection right before its first COMMIT, on MariaDB."""

    killed = False

    def commit(self, guard: Guard, ticket: Ticket, settlement: Settlement) -> bool:
        commit = connection._commit  # type: ignore[attr-defined]

        def killing() -> None:
            if not self.killed:
                self.killed = True
                kill(connection_id())
            commit()

        connection._commit = killing  # type: ignore[attr-defined]
        try:
            return super().commit(guard, ticket, settlement)
        finally:
            connection._commit = commit  # type: ignore[attr-defined]


@not_sqlite
def test_killed_before_a_rollback(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rollback needs no server, and no COMMIT was sent: while none can be reached, the outcome is
    not unknown.

    The work's own error is raised, and the next claim takes over.
    """
    call = Call()
    call.open()
    call.work()
    kill(connection_id())
    with pytest.raises(OperationalError):
        call.work()
    with monkeypatch.context() as patch:
        hide_server(patch)
        call.settle(WorkResult.FAILED)
        connection.close()
    assert (call.listener.events, connection.in_atomic_block) == (["claimed", "lost"], False)
    assert not isinstance(call.listener.errors[-1], OutcomeUnknown)
    assert effects() == 0
    assert Call().run() == Execute(attempt=2, takeover=True)
    assert effects() == 1


@not_sqlite
def test_killed_at_commit() -> None:
    """Without a response to COMMIT the outcome is unknown, so nothing is released; the next claim
    finds a rollback.
    """
    call = Call(store=ORMStore() if connection.vendor == "postgresql" else KilledBeforeCommit())
    call.open()
    call.work()
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(DIE_AT_COMMIT)
    with pytest.raises(OutcomeUnknown):
        call.settle()
    assert (call.listener.events, connection.in_atomic_block) == (["claimed", "lost"], False)
    connection.close()
    assert (effects(), row(call.ticket).status, row(call.ticket).owner) == (
        0,
        Status.RUNNING,
        call.ticket.owner,
    )
    assert Call().run() == Execute(attempt=2, takeover=True)
    assert effects() == 1


def commit_and(raised: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next COMMIT succeed, and then raise an error in this process."""

    def after(commit: Any) -> Any:
        def committing(*arguments: Any) -> None:
            commit(*arguments)
            raise raised

        return committing

    if KIND in {"mariadb", "mysql", "postgresql, apart"}:  # there Django commits
        monkeypatch.setattr(connection, "_commit", after(connection._commit))  # type: ignore[attr-defined]
    else:
        own: type[WorkTransaction] = (
            PostgreSQLTransaction if connection.vendor == "postgresql" else SQLiteTransaction
        )
        monkeypatch.setattr(own, "_commit", after(own._commit))


def test_the_answer_to_commit_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the same case, if it was committed, the next claim replays."""
    call = Call()
    call.open()
    call.work()
    with monkeypatch.context() as patch:
        commit_and(OperationalError(2013, "Lost connection to server during query"), patch)
        with pytest.raises(OutcomeUnknown):
            call.settle()
    assert call.listener.events == ["claimed", "lost"]
    assert Call().run() == Replay(outcome=OUTCOME, attempt=1)
    assert effects() == 1


@not_sqlite
def test_no_other_connection_after_the_answer_to_commit_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server is full: its refusal does not hide that the outcome is unknown."""

    class Full(Exception):
        sqlstate = "53300"

    def full(*_: Any) -> None:
        raise OperationalError(1040, "Too many connections") from Full()

    call = Call()
    call.open()
    call.work()
    with monkeypatch.context() as patch:
        commit_and(OperationalError(2013, "Lost connection to server during query"), patch)
        patch.setattr(connection, "rollback", full)
        patch.setattr(connection, "connect", full)
        with pytest.raises(OutcomeUnknown):
            call.settle()
    connection.close()
    assert call.listener.events == ["claimed", "lost"]
    assert Call().run() == Replay(outcome=OUTCOME, attempt=1)
    assert effects() == 1


def test_an_error_of_ours_after_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A time limit that strikes when COMMIT is done does not release the record: the work must not
    run again.
    """
    call = Call()
    call.open()
    call.work()
    with monkeypatch.context() as patch:
        commit_and(TimeoutError(), patch)
        with pytest.raises(TimeoutError):
            call.settle()
    assert Call().run() == Replay(outcome=OUTCOME, attempt=1)
    assert effects() == 1


def hide_server(patch: pytest.MonkeyPatch) -> None:
    """Point the next connection to a port without a server.

    While a guard is open, the connection has a copy of these.
    """
    patch.setitem(connections.settings[connection.alias], "HOST", "127.0.0.1")
    patch.setitem(connections.settings[connection.alias], "PORT", "1")


@not_sqlite
def test_killed_in_a_lease() -> None:
    """The settle that fails closes the connection, and the next try has a new one."""
    call = Call(make_ticket())
    call.open()
    kill(connection_id())
    call.settle()
    assert call.listener.events == ["claimed", "completed"]


@not_sqlite
def test_killed_in_a_lease_with_its_server(
    deferring: Deferring, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The response of the work is sent, and a settle that fails is written later."""
    call = Call(make_ticket())
    call.open()
    call.work()
    kill(connection_id())
    with monkeypatch.context() as patch:
        hide_server(patch)
        call.settle()
    assert call.listener.events == ["claimed", "deferred"]
    assert (effects(), row(call.ticket).status) == (1, Status.RUNNING)
    deferring.attempt(time.monotonic())
    assert call.listener.events == ["claimed", "deferred", "completed"]
    assert Call(make_ticket()).run() == Replay(outcome=OUTCOME, attempt=1)
    assert effects() == 1


@pytest.mark.parametrize(
    ("change", "back"),
    [
        ("RENAME TO elsewhere", "ALTER TABLE elsewhere RENAME TO django_idempotency_record"),
        (
            "RENAME COLUMN owner TO was",
            "ALTER TABLE django_idempotency_record RENAME COLUMN was TO owner",
        ),
    ],
    ids=["table", "column"],
)
def test_a_forgotten_migration(change: str, back: str, caplog: pytest.LogCaptureFixture) -> None:
    """The log line says what the driver said and what to type, with the traceback; the client gets
    neither.
    """
    with connection.schema_editor() as schema:
        schema.execute(f"ALTER TABLE django_idempotency_record {change}")
    try:
        call = Call()
        with pytest.raises(StoreRefused) as raised:
            call.open()
    finally:
        with connection.schema_editor() as schema:
            schema.execute(back)
    assert "migrate" not in str(raised.value)
    Observer()("unavailable", call.operation, raised.value)
    (record,) = caplog.records
    driver: Any = raised.value.__cause__ and raised.value.__cause__.__cause__
    said = f"{type(driver).__name__}: {str(driver).splitlines()[0]}"
    assert record.getMessage().endswith(
        f": {said}. Type manage.py migrate django_idempotency --database=default"
    )
    assert record.idempotency["cause"] in record.getMessage()  # type: ignore[attr-defined]
    assert record.exc_info is not None
    assert record.exc_info[1] is raised.value
