"""PostgreSQL, and what speaks its language."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from django.db import Error, InternalError, NotSupportedError, ProgrammingError, transaction

from ....errors import LostRace, OutcomeUnknown, OwnershipLost, StoreUnavailable, TransactionLost
from ...interrupted import IN_ERROR
from .. import database_errors
from .base import IDLE, IN_TRANSACTION, Dialect
from .transactions import Bound, WorkTransaction

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.backends.utils import CursorWrapper


#: Keeps the project's lock_timeout, in the transaction in which ours replaces it for a statement.
_KEPT = "django_idempotency.lock_timeout"
#: What this transaction may have written, in tables other than that of the records. Each statement
#: that writes in a table holds a lock on it until the transaction ends, whoever has sent it. The
#: server's counters say whether such a statement has met any row; they may include those of this
#: session's last transactions, so only a zero is a proof, and only of tables that count. Catalogs
#: give their locks back at once: of these the counters are asked, but for pg_class, which a
#: TRUNCATE before this transaction has changed in many a test. A sequence is not rolled back
#: anyway.
_WRITTEN = """
    SELECT held.relation::bigint, held.mode,
        pg_stat_get_xact_tuples_inserted(held.relation)
        + pg_stat_get_xact_tuples_updated(held.relation)
        + pg_stat_get_xact_tuples_deleted(held.relation)
    FROM pg_catalog.pg_locks AS held
    LEFT JOIN pg_catalog.pg_class AS relation ON relation.oid = held.relation
    LEFT JOIN pg_catalog.pg_am AS method ON method.oid = relation.relam
    WHERE held.pid = pg_backend_pid() AND held.locktype = 'relation'
    AND held.mode NOT IN ('AccessShareLock', 'RowShareLock')
    AND held.relation IS DISTINCT FROM to_regclass(%s)
    AND (relation.relkind IS NULL OR relation.relkind NOT IN ('S', 'i', 'I'))
    AND NOT (
        held.mode = 'RowExclusiveLock'
        AND COALESCE(relation.relkind = 'p' OR (relation.relkind IN ('r', 't') AND method.amname = 'heap'), false)
        AND current_setting('track_counts')::bool
        AND pg_stat_get_xact_tuples_inserted(held.relation) = 0
        AND pg_stat_get_xact_tuples_updated(held.relation) = 0
        AND pg_stat_get_xact_tuples_deleted(held.relation) = 0
    )
    UNION ALL
    SELECT relid::bigint, 'catalog', n_tup_ins + n_tup_upd + n_tup_del
    FROM pg_catalog.pg_stat_xact_sys_tables
    WHERE n_tup_ins + n_tup_upd + n_tup_del > 0
    AND relid <> 'pg_catalog.pg_class'::regclass AND schemaname = 'pg_catalog'"""


class PostgreSQL(Dialect):
    """Insert first: settings made in one autocommit statement end with it.

    An asynchronous commit of a claim is for `atomic` only: the COMMIT of the work, later in the
    same log, flushes it, too. Until then a crash of the server may forget the claim, and with it
    that the work has begun.
    """

    vendor = "postgresql"
    aborts = True
    counts_in_transaction = True
    table_size = "SELECT pg_total_relation_size(%s::regclass)"
    clock = "statement_timestamp()"
    bounded = "SET LOCAL lock_timeout = '1s'; "
    later = "statement_timestamp() + %s * interval '1 second'"
    update_tail = " FROM set_config('lock_timeout', '1s', true) AS a"
    location = (
        "(pg_catalog.pg_identify_object('pg_catalog.pg_class'::regclass, tableoid, 0)).identity"
    )
    take_transaction_id = (
        "pg_current_xact_id()::text"  # a transaction that locks a row has one anyway
    )
    transaction_id = "pg_current_xact_id_if_assigned()::text"
    #: Has each row of a table an address of its own? Partitions have equal ones, and some servers
    #: have none.
    probe = (
        "SELECT relkind = 'r' AND NOT relhassubclass, ARRAY(SELECT ctid FROM {table} LIMIT 0)"
        " FROM pg_catalog.pg_class WHERE oid = '{table}'::regclass"
    )

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        super().__init__(connection)
        self._addressed: bool | None = None

    def instant(self, sql: str) -> str:
        """Let the server convert: with USE_TZ=False a driver may return naive local time, which is
        ambiguous.
        """
        return f"{sql} AT TIME ZONE 'UTC'"

    def placeholder(self, db_type: str) -> str:
        return f"%s::{db_type.partition('(')[0]}"

    def insert(self, table: str, columns: str, values: str, *, joined: bool, durable: bool) -> str:
        if joined:
            return super().insert(table, columns, values, joined=joined, durable=durable)
        settings = "set_config('lock_timeout', '50ms', true) AS a"
        if not durable:
            settings += ", set_config('synchronous_commit', 'off', true) AS b"
        return (
            f"{self.insert_verb} {table} ({columns}) SELECT {values} FROM {settings} "
            f"{self.insert_tail}"
        )

    def is_held(self, connection: BaseDatabaseWrapper, error: Error, probe: Bound) -> bool:
        return database_errors.waited_for_a_transaction(error)

    def combines(self, connection: BaseDatabaseWrapper) -> bool:
        """Psycopg 3 can, with its client-side cursors, which are Django's default."""
        made = getattr(connection.connection, "cursor_factory", None)
        client_side = getattr(getattr(connection, "Database", None), "ClientCursor", None)
        return isinstance(made, type) and client_side is not None and issubclass(made, client_side)

    def own_transaction(self, connection: BaseDatabaseWrapper) -> WorkTransaction | None:
        return (
            PostgreSQLTransaction(connection, self.transaction_id)
            if self.combines(connection)
            else None
        )

    def waiting(self, seconds: float) -> tuple[str, str, str] | None:
        patience = max(1, int(seconds * 1000))  # 0 means no limit
        return "", f", set_config('lock_timeout', '{patience}ms', true) AS a", "FOR SHARE"

    @contextmanager
    def joining(self, connection: BaseDatabaseWrapper) -> Iterator[None]:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT current_setting('lock_timeout'), set_config('lock_timeout', '1s', true)"
            )
            before = cursor.fetchone()[0]
            yield
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", [before])

    def purge(
        self, connection: BaseDatabaseWrapper, table: str, chosen: str, given: list[Any]
    ) -> list[Any]:
        """Delete by the rows' addresses, at twice the speed, or by primary key.

        An ARRAY() is filled once.
        """
        if self._addressed is None:
            self._addressed = self._ask(connection, table)
        address = "id"
        this = ""
        # And still so in this table: another connection may find another one under the name.
        if self._addressed:
            address = "ctid"
            this = f" AND tableoid = '{table}'::regclass"
        rows = f"{address} = ANY(ARRAY({chosen.format(columns=address)})){this}"
        with connection.cursor() as cursor:
            cursor.execute(
                f"DELETE FROM {table} WHERE {rows} RETURNING {self.instant('purge_at')}", given
            )
            return [deadline for (deadline,) in cursor.fetchall()]

    def _ask(self, connection: BaseDatabaseWrapper, table: str) -> bool:
        try:
            with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
                cursor.execute(self.probe.format(table=table))
                return bool(cursor.fetchone()[0])
        except (InternalError, NotSupportedError, ProgrammingError):
            return False

    def writes_so_far(self, connection: BaseDatabaseWrapper, table: str) -> Any:
        with connection.cursor() as cursor:
            cursor.execute(_WRITTEN, [connection.ops.quote_name(table)])
            return frozenset(cursor.fetchall())

    def has_written(self, connection: BaseDatabaseWrapper, before: Any, table: str) -> bool:
        return bool(self.writes_so_far(connection, table) - (before or frozenset()))

    def transaction_status(self, connection: BaseDatabaseWrapper) -> int | None:
        driver = connection.connection
        return None if driver is None else _status_of(driver)


class PostgreSQLTransaction(WorkTransaction):
    """For connections that combine statements.

    The driver stays in autocommit: otherwise it would first send a BEGIN of its own, alone.
    """

    #: Ends the message before COMMIT, by one of two errors, unless the settle has updated its row:
    #: this is another transaction (division by zero); it is ours (square root of a negative
    #: number).
    _CHECK = (
        "SELECT CASE WHEN {ours} THEN sqrt(count(*) - 1) ELSE 1 / (count(*) - count(*)) END, "
        "{restore} FROM settled"
    )
    _ERRORS: ClassVar = {
        "22012": TransactionLost,
        "2201F": OwnershipLost,
        "55P03": StoreUnavailable,
    }
    #: Gives the work, and the checks at COMMIT, the lock_timeout back that the project has set.
    _RESTORE = f"set_config('lock_timeout', current_setting('{_KEPT}'), true)"

    def __init__(self, connection: BaseDatabaseWrapper, transaction_id: str) -> None:
        """`transaction_id` is the SQL of an expression for it; lock() takes the id from the end of
        its row.
        """
        super().__init__(connection)
        self._transaction_id = transaction_id

    def lock(self, bound: Bound) -> tuple[Any, ...] | None:
        sql, params = bound
        locked = f"WITH locked AS ({sql}) SELECT locked.*, {self._RESTORE} FROM locked"
        with self.connection.cursor() as cursor:
            cursor.execute(f"{self._begin}; {self._limit('1s')}; {locked}", params)
            # To the last result: a wrapper may have put statements before ours.
            while cursor.nextset():
                pass
            row: tuple[Any, ...] | None = cursor.fetchone()
        if row is None:
            return None  # nothing is done in this transaction
        row = row[:-1]
        self._id = row[-1]
        return row

    @staticmethod
    def _limit(patience: str) -> str:
        """Return a statement that bounds the waits of the next ones in its message, which begin
        with that for the table.
        """
        kept = f"set_config('{_KEPT}', current_setting('lock_timeout'), true)"
        return f"SELECT {kept}, set_config('lock_timeout', '{patience}', true)"

    def is_ours(self) -> bool:
        with self.connection.cursor() as cursor:
            cursor.execute(f"SELECT {self._transaction_id} = %s", [self._id])
            return bool(cursor.fetchone()[0])

    def adapt(self, cursor: CursorWrapper) -> None:
        """Let a server-side cursor end with the transaction, as usual.

        In autocommit Django makes one that outlives it.
        """
        made = cursor.cursor
        if getattr(made, "withhold", False):
            cursor.cursor = type(made)(
                made.connection, name=made.name, scrollable=False, withhold=False
            )
            made.close()

    def _commit(self) -> None:
        if self._status not in {IN_TRANSACTION, IN_ERROR} or self._has_ended():
            raise TransactionLost
        message = "COMMIT"
        params = None
        if self.settling is not None:
            check = self._CHECK.format(ours=f"{self._transaction_id} = %s", restore=self._RESTORE)
            message = (
                f"{self._limit('5s')}; WITH settled AS ({self.settling[0]} RETURNING 1) "
                f"{check}; COMMIT"
            )
            params = [*self.settling[1], self._id]
        try:
            with self.connection.cursor() as cursor:
                cursor.execute(message, params)
        except Exception as error:
            meaning = self._meaning(error)
            if meaning is error:
                raise
            raise meaning from error

    def _meaning(self, error: Exception) -> Exception:
        """Return what an error of the last message means.

        By its status, the driver knows how far the message came.
        """
        # A time limit, which says nothing about it: the record is asked then.
        if not isinstance(error, Error):
            return error
        if self._status in {IN_TRANSACTION, IN_ERROR}:  # not to COMMIT
            known = self._ERRORS.get(database_errors.sqlstate(error) or "")
            return (known or (LostRace if database_errors.lost_race(error) else StoreUnavailable))()
        if self._status == IDLE:  # COMMIT has failed
            return error
        return TransactionLost() if database_errors.cut_for_being_idle(error) else OutcomeUnknown()

    @property
    def _status(self) -> int:
        return _status_of(self.connection.connection)

    def _has_ended(self) -> bool:
        """Has the server ended the connection before we sent the settle?

        Then it is certain that nothing is committed.
        """
        pgconn = self.connection.connection.pgconn
        try:
            with self.connection.wrap_database_errors:
                pgconn.consume_input()
                pgconn.consume_input()  # the first reads why, the second meets the end
        except Error:
            return True
        return False

    @property
    def _begin(self) -> str:
        """BEGIN with the modes that the driver would give it."""
        driver = self.connection.connection
        modes = []
        if driver.isolation_level is not None:
            modes.append(f"ISOLATION LEVEL {driver.isolation_level.name.replace('_', ' ')}")
        if driver.read_only is not None:
            modes.append("READ ONLY" if driver.read_only else "READ WRITE")
        if driver.deferrable is not None:
            modes.append("DEFERRABLE" if driver.deferrable else "NOT DEFERRABLE")
        return " ".join(["BEGIN", *modes])


def _status_of(driver: Any) -> int:
    """Return the status of a driver's transaction.

    Psycopg 3's `info` would make an enum of it, eight times a request.
    """
    return int(
        driver.pgconn.transaction_status
        if hasattr(driver, "pgconn")
        else driver.info.transaction_status
    )
