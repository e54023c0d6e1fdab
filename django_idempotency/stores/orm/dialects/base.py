"""What a dialect is: the SQL that all databases share, and where they may differ."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from django.db import Error

from ...interrupted import drop_if_cut
from .ending import POSTGRESQL, Ending

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.backends.utils import CursorWrapper

    from .transactions import Bound, WorkTransaction

#: libpq's numbers for no transaction and for an open one; psycopg 3 and 2 pass them on.
IDLE = 0
IN_TRANSACTION = 2


class Dialect:
    """The SQL that all databases share. The `%s` of `later` takes what `delay()` returns.

    For another database, subclass the dialect that is most like its own, and call
    `register_dialect()`. A store makes one on its first connection, and all its threads use it.
    """

    #: Of which connections, by Django's `connection.vendor`?
    vendor: str
    #: Is the key looked up before it is inserted?
    reads_first = False
    #: Does INSERT take the id again, at its end?
    insert_asks = False
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
    #: The table of a row, with its schema, if the same name may mean another table on another
    #: connection.
    location = "NULL"
    #: After a SELECT, inside a caller's transaction, that reads the row which an INSERT met.
    joined_read = ""
    #: What precedes a statement that is a transaction of its own, in one message with it, where
    #: statements can be combined: its wait for the table, behind an ALTER or a LOCK TABLE, then
    #: ends. Its other bounds begin after that wait.
    bounded = ""
    #: How a SELECT begins that may be the first statement to wait for the table; the same for
    #: databases that do not combine.
    select_verb = "SELECT"
    #: How an UPDATE by primary key begins; and what follows its assignments outside a transaction.
    update_verb = "UPDATE"
    update_tail = ""
    #: After the SELECT that locks a record; and for its own owner, if that is another.
    lock: str
    lock_own = ""
    #: Expressions that return the transaction's own id; "" if there is none, and a savepoint marks
    #: the transaction instead. `take_transaction_id` assigns an id with the row lock;
    #: `transaction_id` reads it, and assigns none.
    take_transaction_id = ""
    transaction_id = ""
    #: Does `writes_so_far()` count what this transaction has written, so that there is nothing when
    #: it begins?
    counts_in_transaction = False
    #: Does a failed statement abort the transaction, so that only a rollback is possible?
    aborts = False
    #: How a statement is recognised that certainly ends the open transaction.
    ending: Ending = POSTGRESQL
    #: A query for the room that the table given as the parameter takes, indexes included (bytes);
    #: "": it cannot be asked.
    table_size = ""

    @classmethod
    # Most vendors have one dialect.
    def suits(cls, connection: BaseDatabaseWrapper) -> bool:  # noqa: ARG003
        """Does the server of a connection of our vendor understand this dialect? May query it."""
        return True

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        if connection.features.has_select_for_update:
            skips = connection.features.has_select_for_update_skip_locked
            self.lock = connection.ops.for_update_sql(skip_locked=skips, nowait=not skips)

    def delay(self, seconds: float) -> float | str:
        """Return the parameter of `later` for a number of seconds."""
        return seconds

    def instant(self, sql: str) -> str:
        """Return SQL that selects an instant so that the driver returns it in UTC, whatever its
        time zone.
        """
        return sql

    def placeholder(self, db_type: str) -> str:
        """Return `%s`, with a cast if the parameter would have no type."""
        return "%s"

    def insert(self, table: str, columns: str, values: str, *, joined: bool, durable: bool) -> str:
        """Return the INSERT that never waits.

        `joined`: inside a caller's transaction. `durable`: the row is as safe as any COMMIT of this
        session when it returns.
        """
        return f"{self.insert_verb} {table} ({columns}) VALUES ({values}) {self.insert_tail}"

    def size(self, cursor: CursorWrapper, table: str) -> int | None:
        """Return how much room a table takes, indexes included (bytes); `None`: the server cannot
        say.
        """
        if not self.table_size:
            return None
        cursor.execute(self.table_size, [table])
        row = cursor.fetchone()
        return None if row is None or row[0] is None else int(row[0])

    def combines(self, connection: BaseDatabaseWrapper) -> bool:
        """Can the driver put several statements with parameters into one message, and read all of
        their results?
        """
        return False

    def own_transaction(self, connection: BaseDatabaseWrapper) -> WorkTransaction | None:
        """Return a transaction that begins with the lock and settles with its COMMIT; `None`:
        Django begins and commits it.
        """
        return None

    def is_held(self, connection: BaseDatabaseWrapper, error: Error, probe: Bound) -> bool:
        """Did an INSERT fail because an open transaction has inserted the same key?

        May ask by `probe`, see `Statements`.

        In doubt it did not: then nobody is said to be running.
        """
        return False

    def waiting(self, seconds: float) -> tuple[str, str, str] | None:
        """Return the parts before, inside and after a SELECT that waits for a row's lock; `None` if
        it cannot wait.
        """
        return None

    def joining(self, connection: BaseDatabaseWrapper) -> AbstractContextManager[None]:
        """Limit the wait of a claim inside a caller's transaction. A savepoint is open."""
        return nullcontext()

    def bounding(self, connection: BaseDatabaseWrapper) -> AbstractContextManager[None]:
        """Limit the wait of a statement for a row, if it does not say itself how long it waits."""
        return nullcontext()

    def impatient(self, connection: BaseDatabaseWrapper) -> AbstractContextManager[None]:
        """Do not wait for a lock inside this context, which ends when the guard has begun."""
        return nullcontext()

    def gives_up(self, connection: BaseDatabaseWrapper, error: Error) -> bool:
        """Has the database rolled back the whole transaction with this error?

        Only a savepoint's is left otherwise.
        """
        return False

    def writes_so_far(self, connection: BaseDatabaseWrapper, table: str) -> Any:
        """Return what `has_written()` compares with: equal if nothing was written in between.

        The work is about to begin. `table` is that of the records.
        """
        return object()

    def has_written(self, connection: BaseDatabaseWrapper, before: Any, table: str) -> bool:
        """Has this connection written since then, by whatever way? In doubt it has."""
        return bool(self.writes_so_far(connection, table) != before)

    def transaction_status(self, connection: BaseDatabaseWrapper) -> int | None:
        """Return the transaction's status in libpq's terms, without a query; `None` if the driver
        does not know.
        """
        return None

    def purge(
        self, connection: BaseDatabaseWrapper, table: str, chosen: str, given: list[Any]
    ) -> list[Any]:
        """Delete the rows that a SELECT of `{columns}` chooses and locks.

        Return the `purge_at` of each.

        `chosen` takes the parameters `given`. A transaction is open. Here in two statements: as a
        subquery of a DELETE, a planner may run the SELECT more than once, and each time it chooses
        other rows.
        """
        with connection.cursor() as cursor:
            cursor.execute(chosen.format(columns=f"id, {self.instant('purge_at')}"), given)
            rows = cursor.fetchall()
            if rows:
                marks = ", ".join(["%s"] * len(rows))
                cursor.execute(
                    f"DELETE FROM {table} WHERE id IN ({marks})", [each for each, _ in rows]
                )
        return [deadline for _, deadline in rows]


@contextmanager
def changed(connection: BaseDatabaseWrapper, change: str, restore: str) -> Iterator[None]:
    """Change a setting of the session by a statement, and back by another when this context
    ends.
    """
    with connection.cursor() as cursor:
        try:
            cursor.execute(change)
            yield
            cursor.execute(restore)
        except BaseException as error:
            drop_if_cut(connection, error)
            # Again: an interrupt may have cut the first time. A lost connection has no settings.
            with suppress(Error):
                cursor.execute(restore)
            raise
