"""The table in partitions by hash of the primary key, as PostgreSQL makes them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection

from django_idempotency.models import IdempotencyRecord
from django_idempotency.stores.orm import ORMStore
from django_idempotency.stores.orm.dialects import PostgreSQL
from django_idempotency.testing.tickets import make_ticket

from ..helpers import committed, connected_otherwise
from .test_store import ORMStoreContract

TABLE = "django_idempotency_record"
PARTITIONS = 4

pytestmark = [
    pytest.mark.skipif(connection.vendor != "postgresql", reason="the partitions are PostgreSQL's"),
    pytest.mark.slow,
]


@pytest.fixture
def partitioned(db: None) -> Iterator[None]:
    """Find a partitioned table under the name of the plain one, in another schema."""
    schema = "partitioned"
    with connection.cursor() as cursor:
        cursor.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        cursor.execute(f"CREATE SCHEMA {schema}")
        cursor.execute(
            f"CREATE TABLE {schema}.{TABLE} (LIKE {TABLE} INCLUDING ALL) PARTITION BY HASH (id)"
        )
        for number in range(PARTITIONS):
            cursor.execute(
                f"CREATE TABLE {schema}.part_{number} PARTITION OF {schema}.{TABLE} "
                f"FOR VALUES WITH (MODULUS {PARTITIONS}, REMAINDER {number})"
            )
    options = {**connection.settings_dict["OPTIONS"], "options": f"-c search_path={schema},public"}
    with connected_otherwise(OPTIONS=options):
        yield
    with connection.cursor() as cursor:
        cursor.execute(f"DROP SCHEMA {schema} CASCADE")


@committed
class TestPartitioned(ORMStoreContract):
    """Every statement takes a partitioned table."""

    claimers = examples = 10

    @pytest.fixture
    def store(self, partitioned: None) -> ORMStore:
        return ORMStore()


@committed
@pytest.mark.parametrize(
    "known", [False, True], ids=["from the start", "found under the same name later"]
)
def test_a_purge_takes_only_what_is_due(
    partitioned: None, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of two partitions may have the same address: those of live records stay."""
    if known:
        monkeypatch.setattr(PostgreSQL, "probe", "SELECT TRUE")
    store = ORMStore()
    for number in range(80):
        store.claim(make_ticket(key=str(number), lease=0, ttl=0 if number < 40 else 3600))
    assert store.purge(limit=1000).count == (0 if known else 40)
    kept = set(IdempotencyRecord.objects.values_list("key", flat=True))
    assert kept == {str(number) for number in range(0 if known else 40, 80)}
