"""What the test sees of the database beside the servers, and does to it."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from random import SystemRandom

from django.db import connection
from django.utils import timezone

from django_idempotency.models import IdempotencyRecord
from testproject.payments.models import Charge, Effect
from tests.support.combining import COMBINED

#: The duration of sleep(): longer than CLAIM_LEASE.
SLEEP = 3

#: The number of transactions that others have open on the test database.
_OPEN = {
    "postgresql": """
        SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
    """,
    "mysql": """
        SELECT count(*) FROM information_schema.innodb_trx AS open
        JOIN information_schema.processlist AS session ON session.id = open.trx_mysql_thread_id
        WHERE session.db = DATABASE() AND session.id <> CONNECTION_ID()
    """,
}
#: The number of sessions that others have on the test database.
_SESSIONS = {
    "postgresql": """
        SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
        AND NOT (state = 'idle' AND query LIKE 'INSERT INTO "payments_effect"%')
    """,
    "mysql": """
        SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()
    """,
}
#: A statement that keeps a session busy, and a query for the sessions in it.
_SLEEP = {"postgresql": "SELECT pg_sleep(%s)", "mysql": "SELECT SLEEP(%s)"}
_SLEEPING = {
    "postgresql": """
        SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND state = 'active' AND query LIKE 'SELECT pg_sleep(%'
    """,
    "mysql": """
        SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE() AND info LIKE 'SELECT SLEEP(%'
    """,
}
_END = {"postgresql": "SELECT pg_terminate_backend(%s, 5000)", "mysql": "KILL %s"}
#: The problem's code if the session has ended before COMMIT: a guard that combines sees it before
#: it sends anything.
AT_COMMIT = (
    "transaction-lost" if connection.vendor == "postgresql" and COMBINED else "outcome-unknown"
)


def idle() -> bool:
    """Has no other session a transaction open? On SQLite: is there no writer?"""
    if connection.vendor == "sqlite":
        with closing(
            sqlite3.connect(connection.settings_dict["NAME"], timeout=0, isolation_level=None)
        ) as other:
            try:
                other.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
            other.execute("ROLLBACK")
        return True
    if _count(_OPEN[connection.vendor]) == 0:
        return True
    if connection.vendor == "mysql":
        # It shows a copy, refreshed only when it was not read for 0.1 s: a polling reader, or two
        # in step, see the past.
        time.sleep(SystemRandom().uniform(0.15, 0.5))
    return False


def sessions() -> int:
    """Count the database sessions of others. On SQLite there are none.

    Not those in which an async view was the last to write, before its client hung up: at times
    Django leaves one open, of a view without a guard, too.
    """
    return 0 if connection.vendor == "sqlite" else _count(_SESSIONS[connection.vendor])


def _count(query: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(query)
        return int(cursor.fetchone()[0])


def end_session(session: int) -> None:
    """End a database session as its server would. PostgreSQL waits until it is gone."""
    with connection.cursor() as cursor:
        cursor.execute(_END[connection.vendor], [session])


def sleep() -> None:
    """Spend SLEEP seconds in one statement."""
    with connection.cursor() as cursor:
        cursor.execute(_SLEEP[connection.vendor], [SLEEP])


def sleeping() -> int:
    """Count the sessions in sleep()."""
    return _count(_SLEEPING[connection.vendor])


def beyond_its_lease(key: str) -> bool:
    return bool(record(key).lease_until < timezone.now())


def effects(key: str) -> int:
    """Count the committed runs of the work for a key."""
    return Effect.objects.filter(idempotency_key=key, label="charge").count()


def sent(key: str) -> list[str]:
    """Return the downstream keys that the runs for a key have sent, the first one first."""
    runs = Effect.objects.filter(idempotency_key=key, label__startswith="sent ").order_by("pk")
    return [effect.label.removeprefix("sent ") for effect in runs]


def charges() -> int:
    return Charge.objects.count()


def records() -> int:
    return IdempotencyRecord.objects.count()


def latest(key: str) -> Effect:
    """Return the effect of the last run for a key."""
    return Effect.objects.filter(idempotency_key=key, label="charge")[0]


def record(key: str) -> IdempotencyRecord:
    return IdempotencyRecord.objects.get(key=key)
