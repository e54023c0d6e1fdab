"""An advisory lock of the database, of the session: taken, released, or tried."""

from __future__ import annotations

from django.db import connection

LOCKS = {
    "postgresql": ("SELECT pg_advisory_lock(%s)", "SELECT pg_advisory_unlock(%s)", "SELECT pg_try_advisory_lock(%s)"),
    "mysql": ("SELECT GET_LOCK(%s, 1)", "SELECT RELEASE_LOCK(%s)", "SELECT GET_LOCK(%s, 0)"),
}
TAKE, RELEASE, TRY = range(3)


def ask(statement: int) -> bool:
    """Send one of the three, and return what the database says."""
    with connection.cursor() as cursor:
        # MySQL and MariaDB have one lock of a name for all databases, so for all processes of tests.
        name = f"seven of {connection.settings_dict['NAME']}" if connection.vendor == "mysql" else 7
        cursor.execute(LOCKS[connection.vendor][statement], [name])
        return bool(cursor.fetchone()[0])
