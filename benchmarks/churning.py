"""What a day of claims and purges leaves of a table, at a quickened clock: bytes, over the same
rows tightly packed.

Each record's instants are set back, so that the purge finds a day-old record due at once. A vacuum
runs when autovacuum would: nothing but the number of dead rows decides, as it does there.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.utils import timezone

from django_idempotency.core.records import Status
from django_idempotency.models import IdempotencyRecord
from django_idempotency.stores.orm import ORMStore

from .filling import second_table
from .measuring import Effort
from .store import BODY, columns
from .table import Point, Row, Section

NAME = "idempotency_bench_churn"
#: Steps of a day, and records that are in progress at the same time.
STEPS, IN_FLIGHT = 240, 50
#: autovacuum_vacuum_threshold, and the scale factors that are compared: PostgreSQL's default, and
#: what the docs say.
THRESHOLD, FACTORS = 50, (0.2, 0.02)
PURGED = 1000


def sections(effort: Effort) -> Iterator[Section]:
    for factor in FACTORS:
        yield churned(effort.churn, factor)


def churned(claims: int, factor: float) -> Section:
    """Run a first day, which fills the table, and then the day whose sizes are shown."""
    with second_table(NAME):
        sql("SET synchronous_commit = off")  # bytes are counted, not time
        day = Day(max(claims // STEPS, 1), factor)
        for step in range(STEPS):
            day.claim(step)
            day.vacuum_if_due()
        sizes = []
        for step in range(STEPS, 2 * STEPS):
            day.claim(step)
            day.purge(step - STEPS)
            day.vacuum_if_due()
            sizes.append(size())
        sql(f"VACUUM FULL {NAME}")
        packed = size()
        sql("RESET synchronous_commit")
    heaps, indexes = ([each[part] / packed[part] for each in sizes] for part in (0, 1))
    together = [sum(each) / sum(packed) for each in sizes]
    rows = [
        Row(name="table", values=heaps[-1:], note=f"{packed[0] / 1e6:,.0f} MB packed"),
        Row(name="indexes", values=indexes[-1:], note=f"{packed[1] / 1e6:,.0f} MB packed"),
        Row(
            name="together", values=together[-1:], note=f"at most {max(together):.2f} × in the day"
        ),
        Row(name="vacuums", values=[day.vacuums / 2], unit="", note="a day"),
    ]
    return Section(
        title=f"A day of {STEPS * day.count:,} claims, autovacuum_vacuum_scale_factor = "
        f"{factor:g}; packed = 1",
        rows=rows,
        points=[
            Point("churn", f"scale factor {factor:g}", 24 * (step + 1) / STEPS, value)
            for step, value in enumerate(together)
        ],
    )


class Day:
    """Two days of claims, each step some minutes long."""

    def __init__(self, count: int, factor: float) -> None:
        self.count, self.vacuums, self._factor = count, 0, factor
        self._began = timezone.now() - timedelta(days=30)
        self._since: datetime | None = None
        self._store = ORMStore()

    def claim(self, step: int) -> None:
        """Insert and settle a step's records, some in progress at any time, each in a row version
        of its own.
        """
        now = self._began + timedelta(days=step / STEPS)
        left = self.count
        while left > 0:
            ids = inserted(min(left, IN_FLIGHT), now)
            sql(
                f"UPDATE {NAME} SET status = %s, completed_at = %s, response_status = 201, "
                "response_headers = '[]', "
                "response_body = %s WHERE id = ANY(%s)",
                [Status.COMPLETED.value, now, BODY, ids],
            )
            left -= IN_FLIGHT

    def purge(self, step: int) -> None:
        """Delete what a step of the day before has claimed: the oldest records."""
        left, meta = self.count, IdempotencyRecord._meta
        own, meta.db_table = meta.db_table, NAME
        try:
            while left > 0:
                purged = self._store.purge(limit=min(left, PURGED), since=self._since)
                self._since, left = purged.resume, left - max(purged.count, 1)
        finally:
            meta.db_table = own

    def vacuum_if_due(self) -> None:
        sql("SELECT pg_stat_force_next_flush()")
        ((dead, rows),) = sql(
            "SELECT n_dead_tup, greatest(reltuples, 0) FROM pg_stat_user_tables JOIN "
            "pg_class ON pg_class.oid = relid "
            "WHERE pg_class.relname = %s",
            [NAME],
        )
        if dead > THRESHOLD + self._factor * rows:
            sql(f"VACUUM (ANALYZE) {NAME}")
            self.vacuums += 1


def inserted(count: int, now: datetime) -> list[Any]:
    """Insert records in progress, as a claim leaves them, and return their ids."""
    values = columns() | {"created_at": now, "lease_until": now, "expires_at": now, "purge_at": now}
    names = ", ".join(map(connection.ops.quote_name, values))
    rows = sql(
        f"INSERT INTO {NAME} (id, {names}) SELECT gen_random_uuid(), "
        f"{', '.join(['%s'] * len(values))} "
        f"FROM generate_series(1, {count}) RETURNING id",
        list(values.values()),
    )
    return [id_ for (id_,) in rows]


def size() -> tuple[int, int]:
    """Return the bytes of the table and of its indexes."""
    ((heap, indexes),) = sql("SELECT pg_table_size(%s), pg_indexes_size(%s)", [NAME, NAME])
    return heap, indexes


def sql(statement: str, parameters: list[Any] | None = None) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return cursor.fetchall() if cursor.description else []
