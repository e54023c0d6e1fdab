"""MariaDB and MySQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import Error

from .. import database_errors
from .base import Dialect
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
    ending = MYSQL
    _COUNTERS = "'Handler_write', 'Handler_update', 'Handler_delete'"
    #: After a SELECT: does an open transaction hold the row?
    share_or_fail: str

    def is_held(self, connection: BaseDatabaseWrapper, error: Error, probe: Bound) -> bool:
        """Look for the row without waiting: a gap's lock, as of a purge beside it, keeps nobody
        from looking.
        """
        if not database_errors.lock_refused(error):  # a deadlock has rolled everything back
            return False
        sql, params = probe
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"{sql} {self.share_or_fail}", params)
        except Error as found:
            return database_errors.lock_refused(found)
        return False

    def writes_so_far(self, connection: BaseDatabaseWrapper, table: str) -> Any:
        """Ask for the session's own counters of rows that were written, changed and deleted."""
        with connection.cursor() as cursor:
            cursor.execute(f"SHOW SESSION STATUS WHERE Variable_name IN ({self._COUNTERS})")
            return dict(cursor.fetchall())

    def has_written(self, connection: BaseDatabaseWrapper, before: Any, table: str) -> bool:
        return bool(self.writes_so_far(connection, table) != before)

    def gives_up(self, connection: BaseDatabaseWrapper, error: Error) -> bool:
        return database_errors.deadlocked(error)

    def purge(
        self, connection: BaseDatabaseWrapper, table: str, chosen: str, given: list[Any]
    ) -> list[Any]:
        """Delete in two statements: a DELETE of more than one table returns no rows."""
        rows = chosen.format(columns="id, purge_at")
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
    #: A wait for the table has a limit of its own, a day by default.
    read_head = "SET STATEMENT lock_wait_timeout=1 FOR "
    joined_read = (
        "SET STATEMENT innodb_lock_wait_timeout=1, lock_wait_timeout=1 FOR ",
        " LOCK IN SHARE MODE",
    )
    update_head = "SET STATEMENT innodb_lock_wait_timeout=1, lock_wait_timeout=1 FOR "

    @classmethod
    def suits(cls, connection: BaseDatabaseWrapper) -> bool:
        return bool(getattr(connection, "mysql_is_mariadb", False))

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        super().__init__(connection)
        # An INSERT of a duplicate share-locks the row for an instant. Skipping the row then would
        # leave the key without an owner.
        self.lock_own = "FOR UPDATE WAIT 1"

    def is_held(self, connection: BaseDatabaseWrapper, error: Error, probe: Bound) -> bool:
        """See InnoDB.is_held().

        A lock of the whole table, which refuses a mere look as well, holds no key.
        """
        sql, params = probe
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"SET STATEMENT lock_wait_timeout=0 FOR {sql}", params)
        except Error:
            return False
        return super().is_held(connection, error, probe)

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


class MySQL(InnoDB):
    """Read first, since it has no SET STATEMENT and its INSERT waits for the owner's row lock."""

    reads_first = True
    returns = False
    share_or_fail = "FOR SHARE NOWAIT"
    joined_read = ("", " LOCK IN SHARE MODE")
