"""SQLite."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from django.db import Error

from ....errors import LostRace, OwnershipLost, StoreUnavailable, TransactionLost
from .. import database_errors
from .base import IDLE, Dialect, changed
from .ending import SQLITE
from .transactions import Bound, WorkTransaction

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.backends.utils import CursorWrapper


class SQLite(Dialect):
    """Read first: a reader never waits, an insert queues behind any writer."""

    vendor = "sqlite"
    reads_first = True
    clock = "strftime('%%Y-%%m-%%d %%H:%%M:%%f000', 'now')"
    later = "strftime('%%Y-%%m-%%d %%H:%%M:%%f000', 'now', %s)"
    latest = "MAX"
    ending = SQLITE

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        super().__init__(connection)
        self.returns = connection.features.can_return_columns_from_insert

    def delay(self, seconds: float) -> str:
        return f"{seconds:+.3f} seconds"

    def own_transaction(self, connection: BaseDatabaseWrapper) -> WorkTransaction | None:
        # A mode that the project has chosen for its transactions needs a BEGIN. An IMMEDIATE one
        # begins as ours does.
        usual = getattr(connection, "transaction_mode", None) in {None, "DEFERRED", "IMMEDIATE"}
        return SQLiteTransaction(connection) if usual else None

    def impatient(self, connection: BaseDatabaseWrapper) -> AbstractContextManager[None]:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA busy_timeout")
            (patience,) = cursor.fetchone()
        return changed(connection, "PRAGMA busy_timeout=20", f"PRAGMA busy_timeout={patience}")

    def purge(
        self, connection: BaseDatabaseWrapper, table: str, chosen: str, given: list[Any]
    ) -> list[Any]:
        delete = (
            f"DELETE FROM {table} WHERE rowid IN ({chosen.format(columns='rowid')}) RETURNING "
            "purge_at"
        )
        with connection.cursor() as cursor:
            cursor.execute(delete, given)
            return [deadline for (deadline,) in cursor.fetchall()]

    def gives_up(self, connection: BaseDatabaseWrapper, error: Error) -> bool:
        return self.transaction_status(connection) == IDLE

    def writes_so_far(self, connection: BaseDatabaseWrapper, table: str) -> Any:
        """Count rows, and changes of the schema: the driver does, whoever has sent the
        statement.
        """
        # Asked itself: no statement of the project is counted or seen.
        driver = connection.connection
        return driver.total_changes, driver.execute("PRAGMA schema_version").fetchone()[0]

    def transaction_status(self, connection: BaseDatabaseWrapper) -> int | None:
        return None if getattr(connection.connection, "in_transaction", True) else IDLE


class SQLiteTransaction(WorkTransaction):
    """An outermost savepoint is a transaction, and its RELEASE is a COMMIT that fails in any other
    transaction.

    A savepoint takes no lock, so the first statement after it must be a write.
    """

    _NAME = "django_idempotency"

    def lock(self, bound: Bound) -> tuple[Any, ...] | None:
        with self.connection.cursor() as cursor:
            cursor.execute(f"SAVEPOINT {self._NAME}")
            cursor.execute(*bound)
            row: tuple[Any, ...] | None = cursor.fetchone()
        return row

    def is_ours(self) -> bool:
        with self.connection.cursor() as cursor:
            cursor.execute(f"ROLLBACK TO {self._NAME}")
        return True

    def _commit(self) -> None:
        driver = self.connection.connection
        if not driver.in_transaction:
            raise TransactionLost
        try:
            with self.connection.cursor() as cursor:
                settled = self.settling is None or self._settled(cursor, self.settling)
                # ROLLBACK TO fails if the row is gone with our transaction.
                cursor.execute(f"{'RELEASE' if settled else 'ROLLBACK TO'} {self._NAME}")
        except Error as error:
            if database_errors.no_savepoint(error):
                raise TransactionLost from error
            raise
        if not settled:
            raise OwnershipLost

    @staticmethod
    def _settled(cursor: CursorWrapper, settle: Bound) -> bool:
        try:
            cursor.execute(*settle)
        except Error as error:
            raise (LostRace if database_errors.lost_race(error) else StoreUnavailable) from error
        return bool(cursor.rowcount == 1)
