"""Records outside the trail's database, leases, and what clients cancel: events are written after
the fact.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from asgiref.sync import async_to_sync
from django.db import connection
from django.test import AsyncClient, Client
from pytest_django import Settings
from rest_framework.test import APIClient

from django_idempotency import idempotent_function
from django_idempotency.contrib.audit.models import AuditEvent
from django_idempotency.errors import StoreUnavailable
from django_idempotency.runtime.registry import stores
from django_idempotency.stores.memory import MemoryStore
from django_idempotency.stores.redis import RedisStore
from tests.support.services import REDIS, needs_redis

from .helpers import BODY, committed, events, post

pytestmark = [committed, pytest.mark.any_database]


@idempotent_function(key_prefix="elsewhere", data_keyword_argument="order", guarantee="lease")
def pay(*, order: int) -> int:
    if order < 0:
        raise ValueError(order)
    return order


@needs_redis
def test_redis(settings: Settings) -> None:
    """Records in Redis, events in the database."""
    settings.CACHES = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": REDIS}}
    store = RedisStore(prefix=uuid4().hex)
    with stores.replaced("default", store):
        assert pay(order=1) == pay(order=1) == 1
        with pytest.raises(ValueError, match="-1"):
            pay(order=-1)
    assert events() == ["claimed", "completed", "replayed", "claimed", "released"]


def test_a_store_that_does_not_respond(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said of a store elsewhere; of this database nothing could be written."""
    store = MemoryStore()

    def refuse(*_: Any) -> None:
        raise StoreUnavailable

    monkeypatch.setattr(store, "claim", refuse)
    with stores.replaced("default", store), pytest.raises(StoreUnavailable):
        pay(order=1)
    assert events() == ["unavailable"]


def test_lost() -> None:
    """A lease that another has taken over ends as lost, and the timeline has both owners."""
    store = MemoryStore()
    with stores.replaced("default", store):

        @idempotent_function(key_prefix="lost", data_keyword_argument="order", guarantee="lease")
        def slow(*, order: int) -> int:
            ((name, record),) = store._records.items()
            store._records[name] = record._replace(owner=record.operation, attempt=2)
            return order

        slow(order=1)
    assert events() == ["claimed", "lost"]
    assert set(AuditEvent.objects.values_list("attempt", flat=True)) == {1}


def test_an_async_view(browser: Client, user: Any) -> None:
    """The event loop waits for a thread, and the events are there."""
    client = AsyncClient()
    client.cookies = browser.cookies
    for _ in range(2):
        sent: dict[str, Any] = {
            "content_type": "application/json",
            "headers": {"Idempotency-Key": "k-1"},
        }
        assert async_to_sync(client.post)("/async/charges/", BODY, **sent).status_code == 201
    assert events() == ["claimed", "completed", "replayed"]
    assert set(AuditEvent.objects.values_list("actor", flat=True)) == {f"auth.user:{user.pk}"}


def test_atomic_requests(api: APIClient) -> None:
    """With the project's own transactions around each request the events are the same."""
    connection.settings_dict["ATOMIC_REQUESTS"] = True
    try:
        assert post(api).status_code == post(api).status_code == 201
    finally:
        connection.settings_dict["ATOMIC_REQUESTS"] = False
    assert events() == ["claimed", "completed", "replayed"]
