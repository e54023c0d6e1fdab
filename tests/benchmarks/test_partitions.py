"""A key is unique in partitions by day if its day follows from the key itself, and not if it
follows from the claim.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from functools import partial

import pytest
from django.db import DatabaseError, connection, transaction

from benchmarks.partitions import dated, midnight, part, partitioned, today, uuid7
from django_idempotency.errors import StoreUnavailable
from django_idempotency.stores.orm import ORMStore
from tests.stores.helpers import committed, elsewhere, together

pytestmark = [
    pytest.mark.skipif(connection.vendor != "postgresql", reason="PostgreSQL's partitions"),
    pytest.mark.slow,
    committed,
]

#: Partitioned by the day of the claim. A primary key without that day is refused.
BY_CLAIM = (
    "CREATE TABLE by_claim (id int, claimed_at timestamptz, {}) PARTITION BY RANGE (claimed_at)"
)
MIDNIGHT = datetime(2026, 11, 23, tzinfo=timezone.utc)
BEFORE, AFTER = MIDNIGHT - timedelta(milliseconds=1), MIDNIGHT
CLAIM = "INSERT INTO by_claim (id, claimed_at) VALUES (1, %s) ON CONFLICT DO NOTHING RETURNING id"
#: Only if no other day has it, as far as this snapshot can tell.
LOOKING = """
    INSERT INTO by_claim (id, claimed_at) SELECT 1, %s WHERE NOT EXISTS (SELECT FROM by_claim WHERE id = 1)
    ON CONFLICT DO NOTHING RETURNING id
"""


@pytest.fixture
def by_claim(db: None) -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute(BY_CLAIM.format("PRIMARY KEY (id, claimed_at)"))
        for name, start in (("yesterday", MIDNIGHT - timedelta(days=1)), ("today", MIDNIGHT)):
            cursor.execute(
                f"CREATE TABLE by_claim_{name} PARTITION OF by_claim FOR VALUES FROM (%s) TO (%s)",
                [start, start + timedelta(days=1)],
            )
        yield
        cursor.execute("DROP TABLE by_claim")


def claimed(sql: str, at: datetime) -> bool:
    """Does a claim at this time become the owner of the key?"""
    with connection.cursor() as cursor:
        cursor.execute(sql, [at])
        return cursor.fetchone() is not None


def test_no_index_makes_an_id_unique_without_the_day(db: None) -> None:
    """PostgreSQL has no index over all partitions: a unique one must contain what they are made
    by.
    """
    with (
        pytest.raises(DatabaseError, match="claimed_at"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(BY_CLAIM.format("PRIMARY KEY (id)"))


def test_by_the_day_of_the_claim_a_retry_after_midnight_runs_again(by_claim: None) -> None:
    """Two rows with two days do not conflict."""
    assert [claimed(CLAIM, at) for at in (BEFORE, AFTER)] == [True, True]


def test_looking_at_yesterday_first_loses_the_race(by_claim: None) -> None:
    """It sees what is committed; of two claims around midnight neither sees the other one."""
    with transaction.atomic():
        assert claimed(LOOKING, BEFORE)
        assert elsewhere(lambda: claimed(LOOKING, AFTER))
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM by_claim WHERE id = 1")
        assert cursor.fetchone() == (2,)


@pytest.fixture
def days(db: None) -> Iterator[ORMStore]:
    with partitioned("by_key") as store:
        yield store


def test_by_the_day_of_the_key_one_claim_of_many_wins(days: ORMStore) -> None:
    """Wherever midnight is: the key says its day, so all claims meet in one partition, and in one
    unique index.
    """
    for moment in (-1, 0, 1):
        key = uuid7(midnight(today()) + timedelta(milliseconds=moment))
        owners = [dated(key)._replace(owner=uuid7()) for _ in range(8)]
        records = together([partial(days.claim, mine) for mine in owners])
        assert len({record.owner for record in records}) == 1
        with connection.cursor() as cursor:
            cursor.execute("SELECT tableoid::regclass::text FROM by_key WHERE key = %s", [str(key)])
            day = today() - timedelta(days=1 if moment < 0 else 0)
            assert cursor.fetchall() == [(part("by_key", day),)]


def test_a_key_dated_outside_the_partitions_has_no_place(days: ORMStore) -> None:
    """Clients choose the date, so each key would have to be checked before it reaches the
    database.
    """
    with pytest.raises(StoreUnavailable) as raised:
        days.claim(dated(uuid7(datetime(2020, 1, 1, tzinfo=timezone.utc))))
    assert "no partition" in str(raised.value.__cause__)
