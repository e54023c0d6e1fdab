"""What a database error means, judged by its sqlstate or errno and not by its class, and the
store's error for it.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from django.db import Error, InterfaceError, InternalError, OperationalError, connections

from ...errors import LostRace, StoreRefused, StoreUnavailable
from ..interrupted import drop_if_cut

#: Serialisation, deadlock, lock timeout: another transaction was in the way.
LOST_SQLSTATES = frozenset({"40001", "40P01", "55P03"})
#: PostgreSQL has ended the session: by an administrator, a crash or a shutdown; because it was
#: idle, in a transaction or outside; because the transaction took too long.
ENDED_SQLSTATES = frozenset({"57P01", "57P02", "57P03", "57P05", "25P03", "25P04"})
#: InnoDB: lock wait timeout, deadlock, record changed since last read, a lock that was not waited
#: for.
LOST_ERRNOS = frozenset({1205, 1213, 1020, 3572})
#: InnoDB rolls back the whole transaction in favour of another.
DEADLOCK_ERRNO = 1213
#: MySQL clients: server gone, lost connection, killed; 0 is PyMySQL's "closed".
GONE_ERRNOS = frozenset({0, 1053, 1927, 2006, 2013, 2055})


def sqlstate(error: BaseException) -> str | None:
    """Return PostgreSQL's sqlstate (psycopg 3 or 2), if there is one."""
    cause = error.__cause__
    return getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)


def errno(error: BaseException) -> int | None:
    """Return MySQL's error number, if there is one."""
    code = error.args[0] if error.args else None
    return code if isinstance(code, int) else None


def lost_race(error: Error) -> bool:
    """Did another transaction conflict?"""
    return (
        sqlstate(error) in LOST_SQLSTATES
        or errno(error) in LOST_ERRNOS
        # SQLite: database, database table.
        or (isinstance(error, OperationalError) and "is locked" in str(error))
    )


def waited_for_a_transaction(error: Error) -> bool:
    """Has PostgreSQL ended a wait for another transaction's row, and not for a lock of the whole
    table?

    Only then it says in which row: its text is translated, but not whether there is one.
    """
    diagnosis = getattr(error.__cause__, "diag", None)
    return sqlstate(error) == "55P03" and bool(getattr(diagnosis, "context", None))


def cut_for_being_idle(error: BaseException) -> bool:
    """Has PostgreSQL ended the session while it waited for a statement in a transaction?

    Then nothing was committed.
    """
    return sqlstate(error) == "25P03"


def lock_refused(error: Error) -> bool:
    """Has InnoDB given up the wait for a lock, or not waited as it was told?

    It has rolled back the statement alone.
    """
    return errno(error) in {1205, 3572}


def duplicate(error: Error) -> bool:
    """Is it MySQL's error for an existing primary key?"""
    return errno(error) == 1062


def undefined(error: Error) -> bool:
    """Is a table or a column missing?"""
    return (
        sqlstate(error) in {"42P01", "42703"}
        or errno(error) in {1146, 1054}
        or re.match("no such (table|column)|table .* has no column", str(error))
        is not None  # SQLite
    )


def no_savepoint(error: Error) -> bool:
    """Is it SQLite's error for a savepoint that does not exist?"""
    return "no such savepoint" in str(error)


def connection_lost(error: BaseException) -> bool:
    """Did the connection break, so that the outcome of the statement is unknown?"""
    # PyMySQL's, after a statement that was cut.
    if isinstance(error, InternalError) and "Packet sequence" in str(error):
        return True
    if not isinstance(error, (OperationalError, InterfaceError)):
        return False
    if errno(error) is not None:
        return errno(error) in GONE_ERRNOS
    state = sqlstate(error)
    if state is not None:
        return state.startswith("08") or state in ENDED_SQLSTATES
    return type(error.__cause__).__module__.partition(".")[0] != "sqlite3"


def unanswered(error: BaseException | None) -> bool:
    """Did the connection break before this error?

    Django then tries to open another, and raises why it cannot.
    """
    return error is not None and (connection_lost(error) or unanswered(error.__context__))


def translate(error: Error, using: str) -> NoReturn:
    """Raise `LostRace`, `StoreRefused` or `StoreUnavailable` in place of a database's error.

    A connection that broke in autocommit is closed, so that the next statement opens another:
    outside of requests nobody else does that. That of an open transaction is closed by the end of
    its block.
    """
    connection = connections[using]
    if connection_lost(error) and not connection.in_atomic_block:
        with suppress(Error):
            connection.close()
    if undefined(error):
        refused = StoreRefused()
        refused.advice = f"Type manage.py migrate django_idempotency --database={using}"
        raise refused from error
    # MySQL: a SELECT of ours has a time limit, since it may wait for a lock. That of a project's
    # own SELECT says nothing of another transaction.
    if not lost_race(error) and errno(error) != 3024:
        raise StoreUnavailable from error
    # Django's database errors keep themselves alive, and in their frames the cursor of a failed
    # BEGIN. On SQLite, a thread that collects it would wait for this connection, which may wait for
    # that thread's lock.
    traceback.clear_frames(error.__traceback__)
    raise LostRace from error


@contextmanager
def translated(using: str) -> Iterator[None]:
    """Translate the errors of the database of an alias. Here are statements of ours only."""
    try:
        yield
    except Error as error:
        translate(error, using)
    except BaseException as error:
        drop_if_cut(connections[using], error)
        raise
