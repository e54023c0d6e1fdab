"""The Redis store keeps the contract in a cluster whose masters have replicas, and behind
Sentinel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from uuid import uuid4

import pytest
from django.conf import settings
from pytest_django import Settings

from django_idempotency.core.records import Record, Ticket
from django_idempotency.stores.base import BaseStore
from django_idempotency.stores.memory import MemoryStore
from django_idempotency.stores.redis import RedisStore
from django_idempotency.testing import StoreContract

from ....stores.elsewhere import redis_store
from ....stores.redis.test_store import shift
from ....support.redis_groups import Group, cluster_group, sentinel_group
from .groups import caches


class RedisGroupContract(StoreContract):
    def elapse(self, store: RedisStore, seconds: float) -> None:
        client = store._client._server
        for name in client.scan_iter(f"*{store.prefix}:*", count=1000):
            client.set(name, shift(client.get(name), seconds), keepttl=True)

    def vanish(self, store: RedisStore, ticket: Ticket) -> None:
        store._client._server.delete(store._name(ticket.id))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    with cluster_group(tmp_path_factory.mktemp("cluster")) as group:
        yield group


@pytest.fixture(scope="module")
def sentinels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    with sentinel_group(tmp_path_factory.mktemp("sentinels")) as group:
        yield group


def store_of(group: Group, settings: Settings, *, min_replicas: int = 0) -> Iterator[RedisStore]:
    settings.CACHES = caches(group)
    store = RedisStore(
        cache="records", prefix=f"test-{uuid4()}", timeout=5, min_replicas=min_replicas
    )
    yield store
    store._client._server.close()


class TestRedisCluster(RedisGroupContract):
    @pytest.fixture
    def store(self, cluster: Group, settings: Settings) -> Iterator[RedisStore]:
        yield from store_of(cluster, settings)

    def elsewhere(self, store: RedisStore) -> Callable[[], BaseStore]:
        return partial(
            redis_store, settings.CACHES, {"cache": "records", "prefix": store.prefix, "timeout": 5}
        )


@pytest.mark.parametrize("replicas", [0, 1])
class TestSentinel(RedisGroupContract):
    @pytest.fixture
    def store(self, sentinels: Group, settings: Settings, replicas: int) -> Iterator[RedisStore]:
        yield from store_of(sentinels, settings, min_replicas=replicas)

    @pytest.fixture(autouse=True)
    def renewing(self, replicas: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """With `min_replicas` a repeated claim also renews its lease: WAIT needs a write.

        So does the model then.
        """
        claim = MemoryStore.claim

        def renewing(self: MemoryStore, ticket: Ticket) -> Record:
            record = claim(self, ticket)
            self.renew([ticket])
            return record

        if replicas:
            monkeypatch.setattr(MemoryStore, "claim", renewing)

    def elsewhere(self, store: RedisStore) -> Callable[[], BaseStore]:
        return partial(
            redis_store, settings.CACHES, {"cache": "records", "prefix": store.prefix, "timeout": 5}
        )
