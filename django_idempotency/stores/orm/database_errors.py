"""What a database error means, judged by its sqlstate or errno, not by its class."""

from __future__ import annotations

import re

from django.db import Error, InterfaceError, OperationalError

#: Serialisation, deadlock, lock timeout: another transaction was in the way.
LOST_SQLSTATES = frozenset({"40001", "40P01", "55P03"})
#: PostgreSQL has ended the session: by an administrator, a crash or a shutdown; because it was idle, in a transaction
#: or outside; because the transaction took too long.
ENDED_SQLSTATES = frozenset({"57P01", "57P02", "57P03", "57P05", "25P03", "25P04"})
#: InnoDB: lock wait timeout, deadlock, record changed since last read.
LOST_ERRNOS = frozenset({1205, 1213, 1020})
#: These roll back in favour of another transaction, to the last savepoint.
DEADLOCK_SQLSTATES = frozenset({"40001", "40P01"})
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
        or (isinstance(error, OperationalError) and "is locked" in str(error))  # SQLite: database, database table
    )


def deadlocked(error: Error) -> bool:
    """Has PostgreSQL rolled back in favour of another transaction?"""
    return sqlstate(error) in DEADLOCK_SQLSTATES


def cut_for_being_idle(error: BaseException) -> bool:
    """Has PostgreSQL ended the session while it waited for a statement in a transaction? Then nothing was committed."""
    return sqlstate(error) == "25P03"


def duplicate(error: Error) -> bool:
    """Is it MySQL's error for an existing primary key?"""
    return errno(error) == 1062


def undefined(error: Error) -> bool:
    """Is a table or a column missing?"""
    return (
        sqlstate(error) in {"42P01", "42703"}
        or errno(error) in {1146, 1054}
        or re.match("no such (table|column)|table .* has no column", str(error)) is not None  # SQLite
    )


def no_savepoint(error: Error) -> bool:
    """Is it SQLite's error for a savepoint that does not exist?"""
    return "no such savepoint" in str(error)


def connection_lost(error: BaseException) -> bool:
    """Did the connection break, so that the outcome of the statement is unknown?"""
    if not isinstance(error, (OperationalError, InterfaceError)):
        return False
    if errno(error) is not None:
        return errno(error) in GONE_ERRNOS
    state = sqlstate(error)
    if state is not None:
        return state.startswith("08") or state in ENDED_SQLSTATES
    return type(error.__cause__).__module__.partition(".")[0] != "sqlite3"
