"""How many statements an act sends, and how often it makes the database flush its log."""

from __future__ import annotations

from statistics import median

from django.db import connection
from django.test.utils import CaptureQueriesContext

from .measuring import Case

FLUSH_PROBES = 9


def statements(case: Case) -> int:
    """Count the statements, including BEGIN and COMMIT."""
    act = case.prepare()
    with CaptureQueriesContext(connection) as captured:
        act()
    return len(captured)


def flushes(case: Case) -> int | None:
    """Count flushes; `None` if the database does not report them.

    Others may use the server, so take a median.
    """
    if _synced() is None:
        return None
    seen = []
    for _ in range(FLUSH_PROBES):
        act = case.prepare()
        before = _synced() or 0
        act()
        seen.append((_synced() or 0) - before)
    return int(median(seen))


def _synced() -> int | None:
    """Return how often the server has flushed its log so far."""
    if connection.vendor != "postgresql" or not 15 <= connection.get_database_version()[0] < 18:
        return None  # pg_stat_wal counts them from 14 on, at once from 15 on, and no longer in 18
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute("SELECT wal_sync FROM pg_stat_wal")
        return int(cursor.fetchone()[0])
