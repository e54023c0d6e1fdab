"""Many records at once, created by the database itself, and a second table for comparison."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection

from django_idempotency.core.records import Status
from django_idempotency.models import IdempotencyRecord
from django_idempotency.stores.orm import ORMStore

DAY = 86400
#: vendor → a random id, 32 and 1024 bytes, the clock moved by a number of seconds, and rows
#: numbered n.
_SHAPES = {
    "postgresql": (
        "gen_random_uuid()",
        "sha256(n::text::bytea)",
        "convert_to(repeat(md5(n::text), 32), 'UTF8')",
        "clock_timestamp() + ({}) * interval '1 second'",
        "generate_series(1, {}) AS n",
    ),
    "mysql": (
        # a valid UUID, or the column refuses it
        "INSERT(INSERT(MD5(CONCAT(seq, RAND(), RAND())), 13, 1, '5'), 17, 1, 'a')",
        "UNHEX(SHA2(seq, 256))",
        "REPEAT(MD5(seq), 32)",
        "UTC_TIMESTAMP(6) + INTERVAL ({}) SECOND",
        "seq_1_to_{}",
    ),
    "sqlite": (
        "lower(hex(randomblob(16)))",
        "randomblob(32)",
        "randomblob(1024)",
        "strftime('%Y-%m-%d %H:%M:%f000', 'now', ({}) || ' seconds')",
        (
            "(WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE "
            "n < {}) SELECT n FROM numbers)"
        ),
    ),
}


def fill(table: str, count: int, *, age: int = 0, ids: str = "") -> None:
    """Insert completed records with a response of 1 kB: a day's traffic, created `age` seconds ago.

    `ids` is SQL for an id; otherwise they are random.
    """
    if count <= 0:
        return
    random_id, digest, body, clock, numbered = _SHAPES[connection.vendor]
    n = "CAST(seq AS SIGNED)" if connection.vendor == "mysql" else "n"
    expires = f"{n} % 86400 + {DAY - age}"
    claimed = f"{n} % 86400 - {age}"
    values = {
        "id": ids or random_id,
        "scope": f"concat('user:', {n} % 5000)",
        "key": f"concat('filled-', {n})",
        "method": "'POST'",
        "path": "'/api/charges/'",
        "guarantee": "'atomic'",
        "digest": digest,
        "status": str(Status.COMPLETED.value),
        "owner": random_id,
        "operation": random_id,
        "attempt": "1",
        "lease_until": clock.format(claimed),
        "created_at": clock.format(claimed),
        "completed_at": clock.format(claimed),
        "expires_at": clock.format(expires),
        "purge_at": clock.format(expires),
        "secret_id": "'5ec4e71d'",
        "request_id": "''",
        "response_status": "201",
        "response_headers": "'[]'",
        "response_body": body,
    }
    if connection.vendor == "sqlite":  # its concat() is recent
        values |= {"scope": f"'user:' || ({n} % 5000)", "key": f"'filled-' || {n}"}
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} ({', '.join(map(connection.ops.quote_name, values))}) "
            f"SELECT {', '.join(values.values())} FROM {numbered.format(count)}"
        )
    tidy(table)


def tidy(table: str) -> None:
    """Bring a filled table to rest now; autovacuum would do it a minute later, in the middle of a
    round.
    """
    statement = {
        "postgresql": "VACUUM (ANALYZE) {}",
        "mysql": "ANALYZE TABLE {}",
        "sqlite": "ANALYZE {}",
    }
    with connection.cursor() as cursor:
        cursor.execute(statement[connection.vendor].format(table))
        if connection.vendor == "sqlite":
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        if connection.vendor != "postgresql":
            cursor.fetchall()
        else:
            cursor.execute("CHECKPOINT")


def store_on(name: str) -> ORMStore:
    """Return a store that writes to the table of this name."""
    store = ORMStore()
    with _named(name):
        # Builds its SQL, once, while the model has this name.
        store._statements  # noqa: B018, SLF001
    return store


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Give the model's table another name for a moment."""
    meta = IdempotencyRecord._meta
    own, meta.db_table = meta.db_table, name
    try:
        yield
    finally:
        meta.db_table = own


@contextmanager
def second_table(name: str) -> Iterator[ORMStore]:
    """Create a table like that of the records, and yield a store that writes there."""
    with _named(name), connection.schema_editor() as editor:
        editor.create_model(IdempotencyRecord)
    try:
        yield store_on(name)
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP TABLE {name}")
