"""The store's verbs, each compared with the one statement that it cannot avoid, on the same
cursor.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

from django.db import connection
from django.utils import timezone

from django_idempotency.core.hashing import first_operation
from django_idempotency.core.records import Guarantee, Outcome, Settlement, Status, Ticket
from django_idempotency.models import IdempotencyRecord
from django_idempotency.stores.orm import ORMStore
from django_idempotency.testing.tickets import make_ticket

from . import counting
from .filling import fill, second_table, tidy
from .measuring import Act, Case, Effort, interleaved
from .table import Row, Section

TABLE = IdempotencyRecord._meta.db_table
BODY = b"0123456789abcdef" * 64  # 1 kB, which no store deflates
OUTCOME = Outcome(status=201, headers=(("Content-Type", "application/json"),), body=BODY)
SIZES = (100_000, 1_000_000, 5_000_000)
SMALL = 10_000


def ticket(guarantee: Guarantee = Guarantee.ATOMIC) -> Ticket:
    return make_ticket(key=uuid4().hex, guarantee=guarantee)


def settlement(held: Ticket) -> Settlement:
    """Return the settlement of a first call."""
    return Settlement(
        status=Status.COMPLETED,
        fence=held.owner,
        attempt=1,
        digest=held.digest,
        operation=first_operation(held),
        outcome=OUTCOME,
    )


def bare_insert() -> Act:
    """Insert the row that a claim inserts, and nothing else."""
    fields = IdempotencyRecord._meta.concrete_fields
    row = IdempotencyRecord(id=uuid4(), **columns())
    columns_ = ", ".join(connection.ops.quote_name(str(field.column)) for field in fields)
    sql = f"INSERT INTO {TABLE} ({columns_}) VALUES ({', '.join(['%s'] * len(fields))})"
    return partial(
        execute,
        sql,
        [field.get_db_prep_save(field.pre_save(row, add=True), connection) for field in fields],
    )


def columns() -> dict[str, Any]:
    now, key = timezone.now(), uuid4().hex
    return {
        "scope": "user:1",
        "key": key,
        "method": "POST",
        "path": "/api/charges/",
        "guarantee": "atomic",
        "digest": b"0123456789abcdef" * 2,
        "status": Status.RUNNING.value,
        "owner": uuid4(),
        "operation": uuid4(),
        "attempt": 1,
        "lease_until": now,
        "created_at": now,
        "expires_at": now + timedelta(days=1),
        "purge_at": now + timedelta(days=1),
        "secret_id": "5ec4e71d",
        "request_id": "",
        "response_headers": "",
    }


def execute(sql: str, parameters: list[Any], *, fetch: bool = False) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return cursor.fetchone() if fetch else None


def verbs(effort: Effort) -> Section:
    store = ORMStore()
    known = ticket()
    store.claim(known)
    store.settle(known, settlement(known))
    select = store._statements.select(known.id)  # noqa: SLF001 - the statement itself is the base

    def claim(guarantee: Guarantee) -> Act:
        return partial(store.claim, ticket(guarantee))

    hasty = ORMStore(durable_claims=False)

    def claim_in_haste() -> Act:
        return partial(hasty.claim, ticket())

    def get_or_create() -> Act:
        return partial(IdempotencyRecord.objects.get_or_create, id=uuid4(), defaults=columns())

    def claimed() -> Ticket:
        mine = ticket()
        store.claim(mine)
        return mine

    def settle() -> Act:
        mine = claimed()
        return partial(store.settle, mine, settlement(mine))

    def update() -> Act:
        mine = claimed()
        return partial(execute, *store._statements.settle(mine, settlement(mine)))  # noqa: SLF001

    again = make_ticket(key=known.key, guarantee=Guarantee.ATOMIC)
    inserted = Case("a bare INSERT of the row", bare_insert)
    created = Case("get_or_create", get_or_create)
    read = Case("its SELECT by key", lambda: partial(execute, *select, fetch=True))
    updated = Case("the same UPDATE", update)
    atomic = Case("claim of a new key, atomic", partial(claim, Guarantee.ATOMIC))
    undurable = Case("the same, durable_claims off", claim_in_haste)
    lease = Case("claim of a new key, lease", partial(claim, Guarantee.LEASE))
    replay = Case("claim of a known key (replay)", lambda: partial(store.claim, again))
    settled = Case("settle", settle)
    reads_first = store._statements.dialect.reads_first  # noqa: SLF001
    compared = [
        (atomic, inserted, None if reads_first else 1.15),
        (undurable, inserted, None if reads_first else 1.15),
        (lease, inserted, None if reads_first else 1.15),
        (atomic, created, 0.4),
        (replay, read, 1.15 if reads_first else 2.3),
        (settled, updated, 1.15),
    ]
    timings = interleaved(
        [inserted, created, read, updated, atomic, undurable, lease, replay, settled], effort
    )
    rows = [
        Row(
            name=f"{case.name} / {base.name}",
            values=timings.ratios(case.name, base.name),
            bar=bar,
            statements=counting.statements(case),
            flushes=counting.flushes(case),
        )
        for case, base, bar in compared
    ]
    return Section(title="The store's verbs, each over a statement on the same cursor", rows=rows)


def growth(effort: Effort) -> Section:
    """Compare a claim and settle in a large table with the same in a small one."""
    rows, small = [], min(SMALL, effort.rows)
    sizes = [size for size in SIZES if size < effort.rows] + [effort.rows]
    with second_table("idempotency_bench_small") as reference:
        fill("idempotency_bench_small", small)
        for size in sizes:
            fill(TABLE, size - IdempotencyRecord.objects.count())
            cases = [
                Case("large", partial(once, ORMStore())),
                Case("small", partial(once, reference)),
            ]
            timings = interleaved(cases, effort)
            bar = (
                None
                if size < SIZES[0] or connection.vendor != "postgresql"
                else 1.3
                if size > SIZES[1]
                else 1.1
            )
            rows.append(
                Row(name=f"at {size:,} rows", values=timings.ratios("large", "small"), bar=bar)
            )
    return Section(
        title=f"Claim and settle as the table grows; the same at {small:,} rows = 1", rows=rows
    )


def once(store: ORMStore) -> Act:
    mine = ticket(Guarantee.LEASE)

    def act() -> None:
        store.claim(mine)
        store.settle(mine, settlement(mine))

    return act


def size(effort: Effort) -> Section | None:
    """Measure rows as the store leaves them."""
    if connection.vendor == "sqlite":
        return None
    name, count = "idempotency_bench_size", min(2000, effort.rows)
    with second_table(name) as store:
        for _ in range(count):
            once(store)()
        if connection.vendor == "postgresql":
            heap, indexes = execute(
                "SELECT pg_table_size(%s), pg_indexes_size(%s)", [name, name], fetch=True
            )
            tidy(name)
        else:  # its primary key is the table; allocated pages count, filled or not
            tidy(name)
            sizes = (
                "SELECT data_length, index_length FROM information_schema.tables WHERE "
                "table_name = %s"
            )
            heap, indexes = execute(sizes, [name], fetch=True)
    bar = 450 if connection.vendor == "postgresql" else None
    rows = [
        Row(name="table, without the body", values=[heap / count - len(BODY)], unit="B"),
        Row(name="indexes", values=[indexes / count], unit="B"),
        Row(name="together", values=[(heap + indexes) / count - len(BODY)], unit="B", bar=bar),
    ]
    return Section(
        title=f"Bytes a row beyond the stored body, {count:,} claims settled with 1 kB", rows=rows
    )
