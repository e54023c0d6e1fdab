"""What changes when the table is large: claim, replay, purge over the same in a small table; purge
beside traffic.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import cycle

from django.db import connection

from django_idempotency.core.records import Guarantee, Ticket
from django_idempotency.models import IdempotencyRecord
from django_idempotency.stores.orm import ORMStore
from django_idempotency.testing.tickets import make_ticket

from . import churning, purging, worker
from .filling import DAY, fill, second_table
from .measuring import Act, Case, Effort, interleaved
from .store import SMALL, TABLE, once
from .table import Point, Row, Section

REFERENCE = "idempotency_bench_small"
#: Rows of each size that is measured, and how much longer than in the small table its bar allows.
SIZES = ((1_000_000, 1.1), (10_000_000, 1.3))
#: Keys that are replayed, and rows that one batch of the compared purges deletes.
KNOWN, BATCH = 5000, 100
#: Of filled records, at most.
ROWS_A_PAGE = 5
#: A purge is compared in fewer samples: each one uses up rows.
PURGES = 10


def sections(effort: Effort) -> Iterator[Section]:
    sizes = [size for size in SIZES if size[0] < effort.rows] + [(effort.rows, limit(effort.rows))]
    with second_table(REFERENCE) as reference:
        fill(REFERENCE, min(SMALL, effort.rows))
        for size, bar in sizes:
            fill(TABLE, size - IdempotencyRecord.objects.count())
            yield grown(size, bar, reference, effort)
    yield purging.purge(replace(effort, rounds=min(effort.rounds, 3)))
    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {TABLE}")
    yield from churning.sections(effort)
    yield from worker.sections(effort)


def limit(rows: int) -> float:
    """Return the bar for a table of any size."""
    return next((bar for size, bar in SIZES if rows <= size), SIZES[-1][1])


def grown(size: int, bar: float, reference: ORMStore, effort: Effort) -> Section:
    """Compare the verbs in the large table with those in the small one."""
    store, small = ORMStore(), min(SMALL, size)
    pairs: dict[str, tuple[Callable[[], Act], Callable[[], Act]]] = {
        "claim and settle": (partial(once, store), partial(once, reference)),
        "replay, of the newest keys": (
            replays(store, newest(TABLE)),
            replays(reference, newest(REFERENCE)),
        ),
        "replay, of any key": (
            replays(store, anywhere(TABLE, size)),
            replays(reference, anywhere(REFERENCE, small)),
        ),
    }
    cases = [
        Case(f"{where} {name}", act)
        for name, pair in pairs.items()
        for where, act in zip("LS", pair, strict=True)
    ]
    timings = interleaved(cases, effort)
    rows = [
        Row(name=name, values=timings.ratios(f"L {name}", f"S {name}"), bar=bar) for name in pairs
    ]
    rows.append(Row(name=f"purge of {BATCH} rows", values=purges(effort), bar=bar))
    points = [
        Point("growth", row.name, *place)
        for row in rows
        for place in ((small, 1.0), (size, row.middle))
    ]
    return Section(
        title=f"{size:,} rows; the same in a table of {small:,} = 1", rows=rows, points=points
    )


def newest(table: str) -> list[Ticket]:
    """Return retries of the records at the end of the table: before the pages that a fill which was
    killed has left.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_relation_size(%s) / current_setting('block_size')::int", [table])
        (pages,) = cursor.fetchone()
    found, seen = list[Ticket](), KNOWN // ROWS_A_PAGE
    while len(found) < KNOWN // 2:
        found = retries(f"{table} WHERE ctid >= '({max(pages - seen, 0)},1)' AND")
        if seen >= pages:
            break
        seen *= 2
    return found


def anywhere(table: str, size: int) -> list[Ticket]:
    """Return retries of records on random pages of the table."""
    return retries(f"{table} TABLESAMPLE SYSTEM ({min(100, 110 * KNOWN / size)}) WHERE")


def retries(chosen: str) -> list[Ticket]:
    """Return retries of filled records, in a random order."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT id, scope, key, digest FROM {chosen} key LIKE 'filled-%%' AND "
            "purge_at > now()",
            [],
        )
        rows = cursor.fetchall()
    random.Random(1).shuffle(rows)
    return [
        make_ticket(key=key, scope=scope, guarantee=Guarantee.LEASE)._replace(
            id=id_, digest=bytes(digest)
        )
        for id_, scope, key, digest in rows[:KNOWN]
    ]


def replays(store: ORMStore, tickets: list[Ticket]) -> Callable[[], Act]:
    assert tickets, "the table has no filled records"
    turns = cycle(tickets)
    return lambda: partial(store.claim, next(turns))


def purges(effort: Effort) -> list[float]:
    """Purge expired rows of both tables, batch by batch."""
    effort = replace(effort, samples=min(effort.samples, PURGES))
    for table in (TABLE, REFERENCE):
        fill(table, BATCH * (effort.rounds * effort.samples + PURGES), age=3 * DAY)
    cases = [Case(table, Purger(table).prepare) for table in (TABLE, REFERENCE)]
    try:
        return interleaved(cases, effort).ratios(TABLE, REFERENCE)
    finally:
        IdempotencyRecord._meta.db_table = TABLE


class Purger:
    """Purges one table, each batch from where the last one ended."""

    def __init__(self, table: str) -> None:
        self._table, self._store = table, ORMStore()
        self._since: datetime | None = None

    def prepare(self) -> Act:
        IdempotencyRecord._meta.db_table = self._table  # the purge reads it at each batch
        return self._batch

    def _batch(self) -> None:
        purged = self._store.purge(limit=BATCH, since=self._since)
        assert purged.count == BATCH
        self._since = purged.resume
