"""100,000 messages: every look and every lock uses an index, whatever the keys are."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_idempotency.contrib.outbox.models import Message

from .helpers import Recorder

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="EXPLAIN is PostgreSQL's here"),
]

ROWS = 100_000
#: SQL of the n-th message's key, and whether it waits for its next attempt; statements of a batch.
SHAPES = {
    "no keys": ("''", "NULL", 5),
    "a key each": ("'key-' || n", "NULL", 6),
    "a thousand keys": ("'key-' || n % 1000", "NULL", 6),
    "one key": ("'key'", "NULL", 7),
    "half without": ("CASE n % 2 WHEN 0 THEN '' ELSE 'key-' || n % 1000 END", "NULL", 6),
    "all but the last wait": (
        "'key-' || n",
        f"CASE WHEN n <= {ROWS - 100} THEN now() + interval '5 minutes' END",
        6,
    ),
    "behind one that failed": (
        f"CASE WHEN n <= {ROWS - 100} THEN 'bad' ELSE '' END",
        "CASE n WHEN 1 THEN now() + interval '5 minutes' END",
        7,
    ),
}


@pytest.fixture(params=SHAPES)
def statements(request: Any) -> int:
    key, not_before, count = SHAPES[request.param]
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            INSERT INTO {Message._meta.db_table}
                (message_id, topic, key, payload, headers, created_at, attempts, last_error, not_before)
            SELECT gen_random_uuid(), 'topic', {key}, '1', '{{}}', now(), 0, '', {not_before}
            FROM generate_series(1, {ROWS}) AS n
            """
        )
        cursor.execute(f"ANALYZE {Message._meta.db_table}")
    return count


def test_a_batch(statements: int) -> None:
    """A batch is seven statements at most, by an index, and does not even read messages that
    wait.
    """
    relay = Recorder().relay(size=100)
    with CaptureQueriesContext(connection) as captured:
        published = len(relay.batch().published)
    asked = [
        query["sql"]
        for query in captured
        if query["sql"].split()[0].strip("(") in ("SELECT", "DELETE", "UPDATE")
    ]
    assert (published, len(asked)) == (100, statements)
    with connection.cursor() as cursor:
        for sql in asked:
            cursor.execute(f"EXPLAIN {sql}")
            plan = "\n".join(line for (line,) in cursor.fetchall())
            # A filter on keys may leave out nearly all rows, so PostgreSQL may read the table.
            assert f"Seq Scan on {Message._meta.db_table}" not in plan or "NOT" in sql
