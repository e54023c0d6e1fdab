"""Purging beside traffic, and beside another purge."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_idempotency.core.hashing import record_id
from django_idempotency.core.records import Guarantee, Status
from django_idempotency.core.rules import Busy, Execute
from django_idempotency.models import IdempotencyRecord
from django_idempotency.stores.base import Purged
from django_idempotency.stores.orm import ORMStore
from django_idempotency.stores.orm.dialects import PostgreSQL
from django_idempotency.testing.clock import elapse

from ..helpers import OUTCOME, Call, atomic_ticket, effects, elsewhere, not_sqlite, together

pytestmark = pytest.mark.django_db(transaction=True)

#: On PostgreSQL a batch is deleted by the rows' addresses, or by primary key where the probe says
#: no or fails.
PROBES = {"as it is": PostgreSQL.probe, "no address": "SELECT no_such_column FROM {table}"}


@pytest.fixture(
    autouse=True, params=PROBES if connection.vendor == "postgresql" else list(PROBES)[:1]
)
def probed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PostgreSQL, "probe", PROBES[request.param])


LONG_AGO = datetime(2020, 1, 1, tzinfo=timezone.utc)


def fill(count: int, *, apart: timedelta = timedelta(seconds=1)) -> None:
    """Make records that expired long ago, one after another."""
    IdempotencyRecord.objects.bulk_create(
        IdempotencyRecord(
            id=record_id("old", str(number)),
            scope="old",
            key=str(number),
            guarantee=Guarantee.ATOMIC,
            digest=b"",
            status=Status.FREE,
            owner=record_id("owner", str(number)),
            operation=record_id("owner", str(number)),
            attempt=1,
            lease_until=LONG_AGO,
            created_at=LONG_AGO,
            expires_at=LONG_AGO,
            purge_at=LONG_AGO + apart * number,
        )
        for number in range(count)
    )


def purge_all(limit: int) -> int:
    """Purge batch by batch, as the command does."""
    store, count, batch = ORMStore(), 0, Purged(count=1, resume=None)
    while batch.count:
        batch = store.purge(limit=limit, since=batch.resume)
        count += batch.count
    return count


@pytest.mark.parametrize(
    "apart", [timedelta(seconds=1), timedelta(0)], ids=["one by one", "all at the same instant"]
)
def test_batches(apart: timedelta) -> None:
    """Consecutive batches delete everything old, even with equal deadlines, and nothing recent."""
    fill(23, apart=apart)
    young = Call()
    young.run()
    assert purge_all(5) == 23
    assert IdempotencyRecord.objects.get().pk == young.ticket.id


def test_oldest_first() -> None:
    """A batch takes the oldest records, and returns where to resume: at its last deadline."""
    fill(5)
    batch = ORMStore().purge(limit=3)
    assert batch == Purged(count=3, resume=LONG_AGO + timedelta(seconds=2))
    assert sorted(IdempotencyRecord.objects.values_list("key", flat=True)) == ["3", "4"]
    assert ORMStore().purge(limit=3, since=LONG_AGO + timedelta(seconds=4)).count == 1
    assert IdempotencyRecord.objects.get().key == "3"


def test_nothing_to_do() -> None:
    """An empty table ends a purge at once."""
    assert ORMStore().purge(limit=100) == Purged(count=0, resume=None)


@not_sqlite
def test_a_row_that_is_held() -> None:
    """A record whose owner still works is skipped without waiting, even if it is expired and
    lapsed.
    """
    fill(3)
    owner = Call(atomic_ticket(ttl=0))
    owner.open()
    owner.work()
    assert elsewhere(lambda: purge_all(100)) == 3
    owner.settle()
    assert (effects(), IdempotencyRecord.objects.get().status) == (1, Status.COMPLETED)
    elapse(1)
    assert purge_all(100) == 1


@not_sqlite
def test_beside_a_purge_that_is_not_committed() -> None:
    """Records of another, uncommitted purge are skipped without waiting."""
    fill(10)
    with transaction.atomic():
        assert ORMStore().purge(limit=4).count == 4
        assert elsewhere(lambda: purge_all(100)) == 6
    assert IdempotencyRecord.objects.count() == 0


def test_two_purgers() -> None:
    """Two purges at once delete each row once, and neither fails."""
    fill(400)
    counts = together([lambda: purge_all(20)] * 2)
    assert (sum(counts), IdempotencyRecord.objects.count()) == (400, 0)


@not_sqlite
def test_claims_beside_a_purge() -> None:
    """A claim of a new key does not wait for a purge; one that meets a row being deleted is busy or
    runs.
    """
    fill(10)
    with transaction.atomic():
        ORMStore().purge(limit=10)
        assert elsewhere(lambda: Call(atomic_ticket(key="new")).run()) == Execute(attempt=1)
        met = elsewhere(lambda: Call(atomic_ticket(scope="old", key="3")).run())
        assert isinstance(met, (Busy, Execute))
    assert isinstance(Call(atomic_ticket(scope="old", key="4")).run(), Execute)


def test_an_index_serves_it() -> None:
    """The scan walks `purge_at` in order, and never sorts the table."""
    fill(200)
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("ANALYZE django_idempotency_record")
        with CaptureQueriesContext(connection) as sent:
            ORMStore().purge(limit=10)
        chosen = next(query["sql"] for query in sent if " ORDER BY " in query["sql"])
        explain = "EXPLAIN QUERY PLAN" if connection.vendor == "sqlite" else "EXPLAIN"
        cursor.execute(f"{explain} {chosen}")
        plan = " ".join(str(row) for row in cursor.fetchall())
    assert "purge_at" in plan
    assert "filesort" not in plan
    assert "Sort" not in plan
    assert "TEMP B-TREE" not in plan


def test_a_purged_key_is_new() -> None:
    """After its purge a key runs again, as if it had never been used."""
    first = Call(atomic_ticket(ttl=10))
    first.run()
    elapse(11)
    assert purge_all(10) == 1
    assert Call(atomic_ticket(body=b"other")).run() == Execute(attempt=1)
    assert OUTCOME.status == 201
