"""MariaDB and MySQL."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from django.db import Error

from .. import database_errors
from .base import Dialect, changed
from .ending import MYSQL

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

    from .transactions import Bound


class InnoDB(Dialect):
    """What MariaDB and MySQL share. A duplicate is an error: IGNORE would also swallow a bad
    value.
    """

    vendor = "mysql"
    table_size = (
        "SELECT data_length + index_length FROM information_schema.tables WHERE table_schema = "
        "database() AND table_name = %s"
    )
    clock = "UTC_TIMESTAMP(6)"
    later = "UTC_TIMESTAMP(6) + INTERVAL %s SECOND"
    insert_tail = ""
    joined_read = " LOCK IN SHARE MODE"
    ending = MYSQL
    #: What a purge selects, to delete it.
    chosen = "id, purge_at"
    #: After a SELECT: does an open transaction hold the row?
    share_or_fail: str

    def is_held(self, connection: BaseDatabaseWrapper, error: Error, probe: Bound) -> bool:
        """Look for the row without waiting: a gap's lock, as of a purge beside it, keeps nobody
        from looking.

        A lock of the whole table, which refuses a mere look as well, holds no key.
        """
        if not database_errors.lock_refused(error):  # a deadlock has rolled everything back
            return False
        sql, params = probe
        looked = False
        try:
            with connection.cursor() as cursor:
                cursor.execute(sql, params)
                looked = True
                cursor.execute(f"{sql} {self.share_or_fail}", params)
        except Error as found:
            return looked and database_errors.lock_refused(found)
        return False

    def writes_so_far(self, connection: BaseDatabaseWrapper, table: str) -> Any:
        """Ask for the session's own counters of rows that were written, changed and deleted."""
        with connection.cursor() as cursor:
            cursor.execute(
                "SHOW SESSION STATUS WHERE Variable_name IN "
                "('Handler_write', 'Handler_update', 'Handler_delete')"
            )
            return dict(cursor.fetchall())

    def gives_up(self, connection: BaseDatabaseWrapper, error: Error) -> bool:
        return database_errors.errno(error) == database_errors.DEADLOCK_ERRNO

    def purge(
        self, connection: BaseDatabaseWrapper, table: str, chosen: str, given: list[Any]
    ) -> list[Any]:
        """Delete in two statements: a DELETE of more than one table returns no rows."""
        rows = chosen.format(columns=self.chosen.format(table=table))
        with connection.cursor() as cursor:
            cursor.execute(rows, given)
            deadlines = [deadline for _, deadline in cursor.fetchall()]
            # joined row by row: "id IN (...)" may scan the table, and wait for rows that others
            # hold
            if deadlines:
                join = (
                    f"({rows}) AS chosen STRAIGHT_JOIN {table} AS record ON record.id = chosen.id"
                )
                cursor.execute(f"DELETE record FROM {join}", given)
        return deadlines


class MariaDB(InnoDB):
    """Insert first, without waiting for a row lock."""

    insert_verb = "SET STATEMENT innodb_lock_wait_timeout=0, lock_wait_timeout=1 FOR INSERT INTO"
    share_or_fail = "LOCK IN SHARE MODE NOWAIT"
    #: An INSERT of a duplicate share-locks the row for an instant. If the owner skipped the row
    #: then, the key would be without one.
    lock_own = "FOR UPDATE WAIT 1"
    #: A wait for the table has a limit of its own, a day by default.
    select_verb = "SET STATEMENT innodb_lock_wait_timeout=1, lock_wait_timeout=1 FOR SELECT"
    update_verb = "SET STATEMENT innodb_lock_wait_timeout=1, lock_wait_timeout=1 FOR UPDATE"

    @classmethod
    def suits(cls, connection: BaseDatabaseWrapper) -> bool:
        return bool(getattr(connection, "mysql_is_mariadb", False))

    def waiting(self, seconds: float) -> tuple[str, str, str] | None:
        if seconds < 1:  # the setting takes whole seconds
            return None
        return (
            (
                f"SET STATEMENT innodb_lock_wait_timeout={int(seconds)}, "
                f"lock_wait_timeout={int(seconds)} FOR "
            ),
            "",
            "LOCK IN SHARE MODE",
        )


#: Bounds the wait for the table, a year by default. No hint bounds the wait for a row.
_HINT = "/*+ SET_VAR(lock_wait_timeout=1) */"


class MySQL(InnoDB):
    """Read first, since it has no SET STATEMENT.

    Under READ COMMITTED, Django's default, its INSERT looks for the row and fails at once if one is
    there that is not committed. Two INSERTs may look at the same moment: the second waits for a
    second. Under other isolation levels a look would lock the gap, and two new keys beside each
    other would be a deadlock: there each waits for that second.
    """

    reads_first = True
    returns = False
    #: See MariaDB. It knows no WAIT, but how many milliseconds a SELECT may take: of one row.
    lock_own = "FOR UPDATE"
    select_verb = "SELECT /*+ MAX_EXECUTION_TIME(2000) */"
    insert_verb = f"INSERT {_HINT} INTO"
    update_verb = f"UPDATE {_HINT}"
    #: It would sort a small table, lock each row for it, and leave none to another purge.
    chosen = "/*+ INDEX({table}) */ id, purge_at"
    share_or_fail = "FOR SHARE NOWAIT"

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        super().__init__(connection)
        self.insert_asks = getattr(connection, "isolation_level", None) == "read committed"

    def insert(self, table: str, columns: str, values: str, *, joined: bool, durable: bool) -> str:
        if not self.insert_asks:
            return super().insert(table, columns, values, joined=joined, durable=durable)
        return (
            f"{self.insert_verb} {table} ({columns}) SELECT {values} FROM DUAL WHERE NOT EXISTS "
            f"(SELECT 1 FROM {table} AS owner WHERE owner.id = %s {self.share_or_fail})"
        )

    def bounding(self, connection: BaseDatabaseWrapper) -> AbstractContextManager[None]:
        return changed(
            connection,
            "SET @django_idempotency_wait = @@innodb_lock_wait_timeout, "
            "innodb_lock_wait_timeout = 1",
            "SET innodb_lock_wait_timeout = @django_idempotency_wait",
        )
