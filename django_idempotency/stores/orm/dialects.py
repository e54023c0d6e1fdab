"""What each database needs so that a claim never waits for an owner. Measured; see the docs' "Statements and trips"."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from django.db import transaction

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


class Dialect:
    """The SQL that all databases share. The `%s` of `later` takes what `delay()` returns."""

    #: Is the key looked up before it is inserted?
    reads_first = False
    #: Does INSERT return the row?
    returns = True
    #: The database's clock at this statement (not at the transaction's start).
    clock: str
    #: The clock plus a number of seconds.
    later: str
    #: The function that returns the later of two instants.
    latest = "GREATEST"
    insert_verb = "INSERT INTO"
    insert_tail = "ON CONFLICT DO NOTHING"
    #: The table of a row, with its schema, if the same name may mean another table on another connection.
    location = "NULL"
    #: Before and after a SELECT, inside a caller's transaction, that reads the row which an INSERT met.
    joined_read = ("", "")
    #: Before an UPDATE by primary key; and, outside a transaction, after its assignments.
    update_head = ""
    update_tail = ""
    #: After the SELECT that locks a record: for its own owner, and for a takeover.
    lock_own: str
    lock: str
    #: Expressions that return the transaction's own id; "" if there is none, and a savepoint marks the transaction
    #: instead. `take_transaction_id` assigns an id with the row lock; `transaction_id` reads it, and assigns none.
    take_transaction_id = ""
    transaction_id = ""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        if connection.features.has_select_for_update:
            skips = connection.features.has_select_for_update_skip_locked
            self.lock = self.lock_own = connection.ops.for_update_sql(skip_locked=skips, nowait=not skips)

    def delay(self, seconds: float) -> float | str:
        """Return the parameter of `later` for a number of seconds."""
        return seconds

    def instant(self, sql: str) -> str:
        """Return SQL that selects an instant so that the driver returns it in UTC, whatever its time zone."""
        return sql

    def placeholder(self, db_type: str) -> str:
        """Return `%s`, with a cast if the parameter would have no type."""
        return "%s"

    def insert(self, table: str, columns: str, values: str, *, joined: bool, durable: bool) -> str:
        """Return the INSERT that never waits.

        `joined`: inside a caller's transaction. `durable`: the row is on disk before it returns.
        """
        return f"{self.insert_verb} {table} ({columns}) VALUES ({values}) {self.insert_tail}"

    def waiting(self, seconds: float) -> tuple[str, str, str] | None:
        """Return the parts before, inside and after a SELECT that waits for a row's lock; `None` if it cannot wait."""
        return None

    @contextmanager
    def joining(self, connection: BaseDatabaseWrapper) -> Iterator[None]:
        """Limit the wait of a claim inside a caller's transaction, and keep that usable if the wait fails."""
        with transaction.atomic(using=connection.alias):
            yield

    @contextmanager
    def impatient(self, connection: BaseDatabaseWrapper) -> Iterator[None]:
        """Do not wait for a lock inside this context, which ends when the guard has begun."""
        yield


class PostgreSQL(Dialect):
    """Insert first: settings made in one autocommit statement end with it.

    The asynchronous commit is safe for `atomic` only: the COMMIT of the work, later in the same log, flushes it too.
    """

    clock = "statement_timestamp()"
    later = "statement_timestamp() + %s * interval '1 second'"
    update_tail = " FROM set_config('lock_timeout', '1s', true) AS a"
    location = "(pg_catalog.pg_identify_object('pg_catalog.pg_class'::regclass, tableoid, 0)).identity"
    take_transaction_id = "pg_current_xact_id()::text"  # a transaction that locks a row has one anyway
    transaction_id = "pg_current_xact_id_if_assigned()::text"

    def instant(self, sql: str) -> str:
        """Let the server convert: with USE_TZ=False a driver may return naive local time, which is ambiguous."""
        return f"{sql} AT TIME ZONE 'UTC'"

    def placeholder(self, db_type: str) -> str:
        return f"%s::{db_type.partition('(')[0]}"

    def insert(self, table: str, columns: str, values: str, *, joined: bool, durable: bool) -> str:
        if joined:
            return super().insert(table, columns, values, joined=joined, durable=durable)
        settings = "set_config('lock_timeout', '50ms', true) AS a"
        if not durable:
            settings += ", set_config('synchronous_commit', 'off', true) AS b"
        return f"{self.insert_verb} {table} ({columns}) SELECT {values} FROM {settings} {self.insert_tail}"

    def waiting(self, seconds: float) -> tuple[str, str, str] | None:
        patience = max(1, int(seconds * 1000))  # 0 means no limit
        return "", f", set_config('lock_timeout', '{patience}ms', true) AS a", "FOR SHARE"

    @contextmanager
    def joining(self, connection: BaseDatabaseWrapper) -> Iterator[None]:
        with super().joining(connection), connection.cursor() as cursor:
            cursor.execute("SELECT current_setting('lock_timeout'), set_config('lock_timeout', '1s', true)")
            before = cursor.fetchone()[0]
            yield
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", [before])


class MariaDB(Dialect):
    """Insert first, without waiting for a row lock. A duplicate is an error: IGNORE would also swallow a bad value."""

    clock = "UTC_TIMESTAMP(6)"
    later = "UTC_TIMESTAMP(6) + INTERVAL %s SECOND"
    insert_verb = "SET STATEMENT innodb_lock_wait_timeout=0 FOR INSERT INTO"
    insert_tail = ""
    joined_read = ("SET STATEMENT innodb_lock_wait_timeout=1 FOR ", " LOCK IN SHARE MODE")
    update_head = "SET STATEMENT innodb_lock_wait_timeout=1 FOR "

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        super().__init__(connection)
        # An INSERT of a duplicate share-locks the row for an instant. Skipping the row then would leave the key without
        # an owner.
        self.lock_own = "FOR UPDATE WAIT 1"

    def waiting(self, seconds: float) -> tuple[str, str, str] | None:
        if seconds < 1:  # the setting takes whole seconds
            return None
        return f"SET STATEMENT innodb_lock_wait_timeout={int(seconds)} FOR ", "", "LOCK IN SHARE MODE"


class MySQL(Dialect):
    """Read first, since it has no SET STATEMENT and its INSERT waits for the owner's row lock."""

    reads_first = True
    returns = False
    clock = MariaDB.clock
    later = MariaDB.later
    insert_tail = ""
    joined_read = ("", " LOCK IN SHARE MODE")


class SQLite(Dialect):
    """Read first: a reader never waits, an insert queues behind any writer."""

    reads_first = True
    clock = "strftime('%%Y-%%m-%%d %%H:%%M:%%f000', 'now')"
    later = "strftime('%%Y-%%m-%%d %%H:%%M:%%f000', 'now', %s)"
    latest = "MAX"

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        super().__init__(connection)
        self.returns = connection.features.can_return_columns_from_insert

    def delay(self, seconds: float) -> str:
        return f"{seconds:+.3f} seconds"

    @contextmanager
    def impatient(self, connection: BaseDatabaseWrapper) -> Iterator[None]:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA busy_timeout")
            patience = cursor.fetchone()[0]
            cursor.execute("PRAGMA busy_timeout=20")
        try:
            yield
        finally:
            with connection.cursor() as cursor:
                cursor.execute(f"PRAGMA busy_timeout={int(patience)}")


def dialect(connection: BaseDatabaseWrapper) -> Dialect:
    """Return the dialect of a connection. MariaDB, a fork, has its own."""
    if connection.vendor == "mysql":
        return (MariaDB if getattr(connection, "mysql_is_mariadb", False) else MySQL)(connection)
    dialects = {"postgresql": PostgreSQL, "sqlite": SQLite}
    return dialects[connection.vendor](connection)
