"""The Redis store in a cluster keeps the contract: two nodes with half of the keys each, redis-py's
own clients.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from pytest_django import Settings
from redis import Redis
from redis.cluster import RedisCluster

from django_idempotency.core.records import Status, Ticket
from django_idempotency.errors import StoreUnavailable
from django_idempotency.stores.base import BaseStore
from django_idempotency.stores.redis import RedisStore
from django_idempotency.testing import StoreContract
from django_idempotency.testing.tickets import make_ticket

from ...support.services import needs_redis
from ...support.store_servers import RedisNode, running
from ..elsewhere import redis_store
from .test_store import settled_by, shift

#: redis-py leaves the connections of a cluster's client to the garbage collector.
UNCLOSED = "unclosed <socket"
pytestmark = [needs_redis, pytest.mark.filterwarnings(f"ignore:{UNCLOSED}:ResourceWarning")]


@pytest.fixture(scope="module", autouse=True)
def collected() -> Iterator[None]:
    """Collect them here: a test of another module would fail with their warning."""
    yield
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", UNCLOSED, ResourceWarning)
        gc.collect()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RedisNode]]:
    one, other = (RedisNode(tmp_path_factory.mktemp("node")) for _ in range(2))
    with running(one), running(other):
        one.join([other])
        yield [one, other]


@pytest.fixture
def cluster(nodes: list[RedisNode], settings: Settings) -> list[RedisNode]:
    settings.CACHES = {
        "cluster": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": [node.url for node in nodes],
            "OPTIONS": {"REDIS_CLIENT_CLASS": "redis.cluster.RedisCluster"},
        }
    }
    return nodes


@pytest.fixture
def store(cluster: list[RedisNode]) -> RedisStore:
    return RedisStore(cache="cluster", prefix=f"test-{uuid4()}", timeout=5)


class TestRedisCluster(StoreContract):
    def elapse(self, store: RedisStore, seconds: float) -> None:
        client = store._client._server
        for name in client.scan_iter(f"*{store.prefix}:*", count=1000):
            client.set(name, shift(client.get(name), seconds), keepttl=True)

    def vanish(self, store: RedisStore, ticket: Ticket) -> None:
        store._client._server.delete(store._name(ticket.id))

    def elsewhere(self, store: RedisStore) -> Callable[[], BaseStore]:
        return partial(
            redis_store, settings.CACHES, {"cache": "cluster", "prefix": store.prefix, "timeout": 5}
        )


def test_keys_are_everywhere(store: RedisStore, cluster: list[RedisNode]) -> None:
    """All nodes hold some of the records, whichever is named, and one call renews all of them."""
    tickets = [make_ticket(key=str(number)) for number in range(40)]
    for ticket in tickets:
        store.claim(ticket)
    held = []
    for node in cluster:
        with RedisCluster.from_url(node.url) as client:
            held.append(client.dbsize(target_nodes=client.get_node("127.0.0.1", node.port)))
    assert min(held) > 0
    assert store.renew(tickets) == {ticket.owner for ticket in tickets}
    assert store.about()["redis_version"]


def test_a_node_that_is_away(store: RedisStore, settings: Settings) -> None:
    """Another node names the nodes. Without any the store is unavailable."""
    cache = settings.CACHES["cluster"]
    settings.CACHES = {
        "cluster": {**cache, "LOCATION": ["redis://127.0.0.1:1/0", *cache["LOCATION"]]}
    }
    one = RedisStore(cache="cluster", prefix=store.prefix, timeout=5)
    assert one.claim(make_ticket(key="away")).status is Status.RUNNING
    settings.CACHES = {"cluster": {**cache, "LOCATION": "redis://127.0.0.1:1/0"}}
    none = RedisStore(cache="cluster")
    with pytest.raises(StoreUnavailable):
        none.claim(make_ticket())


def test_a_node_that_is_away_takes_no_lease_of_others(tmp_path: Path, settings: Settings) -> None:
    """The other nodes' records are renewed, and `renewed` lists them, so the heartbeat does not
    report them as lost.

    They are settled, too, by a node that has lost the scripts: it gets them without a question to
    all nodes.
    """
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    one, other = RedisNode(tmp_path / "one"), RedisNode(tmp_path / "other")
    tickets = [make_ticket(key=str(number)) for number in range(12)]
    with running(one):
        with running(other):
            one.join([other])
            options = {"REDIS_CLIENT_CLASS": "redis.cluster.RedisCluster"}
            cache = {
                "BACKEND": "django_redis.cache.RedisCache",
                "LOCATION": [one.url, other.url],
                "OPTIONS": options,
            }
            settings.CACHES = {"cluster": cache}
            store = RedisStore(cache="cluster", timeout=5)
            for ticket in tickets:
                store.claim(ticket)
            client = store._client._server
            there = {
                t.owner
                for t in tickets
                if client.get_node_from_key(store._name(t.id)).port == one.port
            }
        assert 0 < len(there) < len(tickets)
        with pytest.raises(StoreUnavailable) as raised:
            store.renew(tickets)
        assert raised.value.renewed == there
        with Redis(port=one.port) as forgetful:
            forgetful.script_flush()
        ours = next(ticket for ticket in tickets if ticket.owner in there)
        assert store.settle(ours, settled_by(ours)) is True


def test_replicas_cannot_be_waited_for(cluster: list[RedisNode]) -> None:
    """The error comes at the first use."""
    store = RedisStore(cache="cluster", min_replicas=1)
    with pytest.raises(ImproperlyConfigured, match="min_replicas"):
        store.claim(make_ticket())
