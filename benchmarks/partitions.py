"""Records in partitions by day, which are dropped in place of a purge.

An experiment: no part of the package.

The index that makes a key unique must contain what the partitions are made by. So a record's day
has to follow from its key, as in a UUIDv7, whose first 48 bits are milliseconds since 1970. Here
they are the first 48 bits of the record's id, too, before the hash of scope and key; the partitions
are ranges of ids, and every statement of the store stays as it is.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from functools import partial
from uuid import UUID

from django.db import connection

from django_idempotency.core.records import Guarantee, Ticket
from django_idempotency.stores.orm import ORMStore
from django_idempotency.testing.tickets import make_ticket

from . import purging
from .filling import DAY, fill, second_table, store_on
from .measuring import Act, Case, Effort, interleaved, no_collection, timed
from .scale import anywhere, replays
from .store import TABLE, settlement
from .table import Row, Section

#: The partitioned table; and a plain one with the same ids, which tells apart what comes of their
#: order.
DAYS, ORDERED = "idempotency_bench_days", "idempotency_bench_ordered"
#: Partitions beside the two of today and tomorrow.
KEPT = 30
#: The day of records that have expired.
EXPIRED = KEPT + 10


def sections(effort: Effort) -> Iterator[Section]:
    with partitioned(DAYS) as days, second_table(ORDERED) as ordered:
        fill(TABLE, effort.rows)
        for table in (DAYS, ORDERED):
            fill(table, effort.rows, ids=ids(f"n % {KEPT}"))
        yield verbs(days, ordered, effort)
        yield leaving(days, replace(effort, rounds=min(effort.rounds, 3)))


def verbs(days: ORMStore, ordered: ORMStore, effort: Effort) -> Section:
    plain = ORMStore()
    stores = {
        "plain": (plain, TABLE, ticket),
        "ordered": (ordered, ORDERED, dated),
        "days": (days, DAYS, dated),
    }
    cases = []
    for name, (store, table, fresh) in stores.items():
        cases.append(Case(f"{name} claim", claims(store, fresh)))
        cases.append(Case(f"{name} both", partial(first_call, store, fresh)))
        cases.append(Case(f"{name} replay", replays(store, anywhere(table, effort.rows))))
    timings = interleaved(cases, effort)

    def row(name: str, verb: str, table: str, bar: float | None = None) -> Row:
        return Row(name=name, values=timings.ratios(f"{table} {verb}", f"plain {verb}"), bar=bar)

    rows = [
        row("claim of a new key", "claim", "days", 1.15),
        row("claim and settle", "both", "days"),
        row("replay", "replay", "days"),
        row("claim of a new key, not partitioned", "claim", "ordered"),
        row("claim and settle, not partitioned", "both", "ordered"),
        row("replay, not partitioned", "replay", "ordered"),
    ]
    title = (
        f"{KEPT + 2} partitions by the day of a UUIDv7, {effort.rows:,} rows; random ids in a "
        "plain table = 1"
    )
    return Section(title=title, rows=rows)


def leaving(days: ORMStore, effort: Effort) -> Section:
    """Let the same number of expired rows leave both tables, beside claims."""
    rates: dict[str, list[float]] = {"purge": [], "drop": []}
    tails: dict[str, list[float]] = {"purge": [], "drop": []}

    def note(name: str, act: Act, traffic: purging.Traffic) -> None:
        with no_collection(), traffic:
            rates[name].append(effort.purged / timed(act))
        tails[name].append(traffic.percentile(99))

    for _ in range(effort.rounds):
        fill(TABLE, effort.purged, age=3 * DAY)
        note("purge", purging.delete_all, purging.Traffic())
        add(DAYS, day := today() - timedelta(days=EXPIRED))
        fill(DAYS, effort.purged, age=3 * DAY, ids=ids(str(EXPIRED)))
        note("drop", partial(drop, DAYS, day), purging.Traffic(partial(first_call, days, dated)))
    rows = [
        Row(name="purged, rows in a second", values=rates["purge"], unit="rows/s"),
        Row(name="detached and dropped, rows in a second", values=rates["drop"], unit="rows/s"),
        Row(name="claim and settle beside the purge, p99", values=tails["purge"], unit="ms"),
        Row(name="claim and settle beside the drop, p99", values=tails["drop"], unit="ms"),
    ]
    return Section(
        title=f"{effort.purged:,} expired rows, {purging.BATCH:,} in a batch or all of a day",
        rows=rows,
    )


# ------------------------------------------------------------------------------------------ tickets


def ticket() -> Ticket:
    return make_ticket(key=str(uuid7()), guarantee=Guarantee.LEASE)


def dated(key: UUID | None = None) -> Ticket:
    """Return a ticket whose id begins with the time in its key."""
    key = key or uuid7()
    mine = make_ticket(key=str(key), guarantee=Guarantee.LEASE)
    return mine._replace(id=UUID(bytes=key.bytes[:6] + mine.id.bytes[6:]))


def uuid7(at: datetime | None = None) -> UUID:
    """Return a new UUIDv7 (RFC 9562, section 5.7)."""
    random = secrets.randbits(74)
    head = milliseconds(at or datetime.now(timezone.utc)) << 80 | 7 << 76 | (random >> 62) << 64
    return UUID(int=head | 2 << 62 | random & (1 << 62) - 1)


def claims(store: ORMStore, fresh: Callable[[], Ticket]) -> Callable[[], Act]:
    return lambda: partial(store.claim, fresh())


def first_call(store: ORMStore, fresh: Callable[[], Ticket]) -> Act:
    mine = fresh()

    def act() -> None:
        store.claim(mine)
        store.settle(mine, settlement(mine))

    return act


# --------------------------------------------------------------------------------------- partitions


@contextmanager
def partitioned(table: str) -> Iterator[ORMStore]:
    """Make the table, with partitions from KEPT days ago until tomorrow, and yield a store that
    writes there.
    """
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {table} (LIKE {TABLE} INCLUDING ALL) PARTITION BY RANGE (id)")
    try:
        for back in range(-1, KEPT + 1):
            add(table, today() - timedelta(days=back))
        yield store_on(table)
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP TABLE {table}")


def add(table: str, day: date) -> None:
    """Make the partition of a day."""
    bounds = [
        UUID(int=milliseconds(midnight(each)) << 80) for each in (day, day + timedelta(days=1))
    ]
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE TABLE {part(table, day)} PARTITION OF {table} FOR VALUES FROM (%s) TO (%s)",
            bounds,
        )


def drop(table: str, day: date) -> None:
    """Drop the partition of a day.

    Detached first: a DROP alone would make claims wait for whoever reads the table.
    """
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {table} DETACH PARTITION {part(table, day)} CONCURRENTLY")
        cursor.execute(f"DROP TABLE {part(table, day)}")


def part(table: str, day: date) -> str:
    return f"{table}_{day:%Y%m%d}"


def ids(back: str) -> str:
    """Return SQL for a random id of a day, `back` days ago."""
    instant = f"(extract(epoch FROM now() - ({back}) * interval '1 day') * 1000)::bigint"
    return f"(lpad(to_hex({instant}), 12, '0') || left(md5(n::text || random()::text), 20))::uuid"


def today() -> date:
    return datetime.now(timezone.utc).date()


def midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=timezone.utc)


def milliseconds(at: datetime) -> int:
    return int(at.timestamp() * 1000)
