"""What a response says is nowhere in the files and requests of a server: each test first finds it
without keys.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django_redis import get_redis_connection
from pytest_django import Settings

from django_idempotency.core.conclusions import SettledState
from django_idempotency.core.records import Outcome
from django_idempotency.runtime.registry import protected, stores
from django_idempotency.testing.contract.base import Contract
from django_idempotency.testing.tickets import make_ticket
from tests.support.services import REDIS as ADDRESS
from tests.support.services import needs_redis

from ....stores.dynamodb.server import make_store, make_table
from .keys import FIRST

#: Our settings for each store.
ORM, REDIS, LAYERED = (
    {"BACKEND": f"django_idempotency.stores.{name}"}
    for name in ("orm.ORMStore", "redis.RedisStore", "layered.LayeredStore")
)


def kept(canary: str) -> None:
    """Complete a key with the canary in header and body, and let a retry read it."""
    store, ticket = stores["default"], make_ticket(key=str(uuid4()))
    outcome = Outcome(201, (("Location", f"/{canary}/"),), f'{{"iban": "{canary}"}}'.encode())
    assert Contract().leave(store, ticket, SettledState.COMPLETED, outcome)
    assert store.claim(ticket._replace(owner=uuid4())).outcome == outcome


@pytest.fixture(params=[True, False], ids=["sealed", "plain"])
def sealed(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def canary() -> str:
    return f"canary-{uuid4().hex}"


def configure(settings: Settings, sealed: bool, **found: Any) -> None:
    settings.IDEMPOTENCY = {"STORES": found, "ENCRYPTION_KEYS": [FIRST] if sealed else []}


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(connection.vendor != "postgresql", reason="reads PostgreSQL's files")
def test_postgresql(settings: Settings, sealed: bool, canary: str) -> None:
    """Not in the table's files, their TOAST and index, nor in the log that replicas and backups
    get.
    """
    configure(settings, sealed, default=ORM)
    with connection.cursor() as cursor:
        cursor.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
        if not cursor.fetchone()[0]:
            pytest.skip("only a superuser may read the server's files")
        cursor.execute("SELECT pg_walfile_name(pg_current_wal_lsn())")
        (began,) = cursor.fetchone()
        kept(canary)
        cursor.execute("CHECKPOINT")
        cursor.execute(
            "SELECT name FROM (SELECT pg_relation_filepath(c.oid) AS name FROM pg_class c, "
            "pg_class r "
            "WHERE r.relname = 'django_idempotency_record' AND (c.oid IN (r.oid, "
            "r.reltoastrelid) OR c.oid IN "
            "(SELECT indexrelid FROM pg_index WHERE indrelid = r.oid)) UNION "
            "SELECT 'pg_wal/' || name FROM pg_ls_waldir() WHERE name BETWEEN %s AND "
            "pg_walfile_name(pg_current_wal_lsn())) f",
            [began],
        )
        files = [name for (name,) in cursor.fetchall()]
        assert len(files) > 3
        found = []
        for name in files:
            cursor.execute(
                "SELECT position(%s::bytea IN pg_read_binary_file(%s))", [canary.encode(), name]
            )
            found.append(cursor.fetchone()[0] > 0)
    assert any(found) == (not sealed)


@needs_redis
@pytest.mark.django_db
def test_redis(settings: Settings, sealed: bool, canary: str) -> None:
    """Not in any value that Redis has: of records, and of the copies of a front."""
    front = {**LAYERED, "OPTIONS": {"front": "front", "authority": "records"}}
    prefix = uuid4().hex
    records, copies = (
        {**REDIS, "OPTIONS": {"prefix": f"{prefix}-{name}"}} for name in ("records", "copies")
    )
    settings.CACHES = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": ADDRESS}}
    configure(settings, sealed, default=front, records=records, front=copies)
    kept(canary)
    client = get_redis_connection("default")
    values = {name: client.get(name) for name in client.scan_iter(match=f"*{prefix}*")}
    assert len(values) == 2
    assert {canary.encode() in name + value for name, value in values.items()} == {not sealed}
    client.delete(*values)


@pytest.mark.unit
def test_dynamodb(settings: Settings, sealed: bool, canary: str, dynamodb: str) -> None:
    """Not in any request that leaves this host."""
    store, said = make_table(make_store(dynamodb)), list[bytes]()

    def listen(request: Any, **_: Any) -> None:
        said.append(request.body + b"".join(binary(json.loads(request.body))))

    store.client.boto.meta.events.register("before-send.dynamodb", listen)
    configure(settings, sealed, default=ORM)
    with stores.replaced("default", protected(store)):
        kept(canary)
    assert len(said) == 3
    assert any(canary.encode() in request for request in said) == (not sealed)


def binary(value: Any) -> Iterator[bytes]:
    """Yield the binary attributes of a request, decoded."""
    for name, each in value.items() if isinstance(value, dict) else ():
        if name == "B":
            yield base64.b64decode(each)
        else:
            yield from binary(each)
