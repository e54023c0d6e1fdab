"""How other processes make the stores of these tests.

Light to import, because they load it first.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import connections
from django.test import override_settings

from django_idempotency.stores.base import BaseStore
from django_idempotency.stores.orm import ORMStore
from django_idempotency.stores.redis import RedisStore


def orm_store(database: str, *, combine: bool = True) -> BaseStore:
    """Return the default store, on the test database of that name."""
    connections.databases["default"]["NAME"] = database
    return ORMStore(combine=combine)


def redis_store(caches: dict[str, Any], options: dict[str, Any]) -> BaseStore:
    override_settings(CACHES=caches).enable()  # never disabled; a process makes more than one store
    return RedisStore(**options)


def dynamodb_store(endpoint: str, table: str, now: datetime, options: dict[str, Any]) -> BaseStore:
    from .dynamodb.server import make_store

    return make_store(endpoint, table=table, clock=lambda: now, **options)


def plain_store(database: str) -> BaseStore:
    """Return a store of the other backend, on the test database of that name."""
    from django_idempotency.stores.orm.dialects import register_dialect

    from .orm.plain_database.dialect import Plain

    connections.databases["default"]["ENGINE"] = "tests.stores.orm.plain_database"
    register_dialect(Plain)
    return orm_store(database)
