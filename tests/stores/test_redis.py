"""The Redis store keeps the contract, on a real server; and what only it promises."""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar
from uuid import uuid4

import pytest
from asgiref.sync import async_to_sync
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django_redis import get_redis_connection
from pytest_django import Settings
from redis import Redis
from redis.asyncio.connection import AbstractConnection as AsyncConnection
from redis.connection import Connection

from django_idempotency.core import payload
from django_idempotency.core.records import Outcome, Settlement, Status, Ticket
from django_idempotency.stores.base import BaseStore
from django_idempotency.stores.redis import RedisStore
from django_idempotency.testing import StoreContract
from django_idempotency.testing.tickets import make_ticket

from ..services import REDIS, needs_redis
from .elsewhere import redis_store

pytestmark = needs_redis

#: Where a packed record has its instants: lease, completed, expires, then created (core/payload.py).
INSTANTS = (54, 62, 70, 111)


def shift(value: bytes, seconds: float) -> bytes:
    """Return a packed record as it would be had it been written so much earlier."""
    shifted = bytearray(value)
    for place in INSTANTS:
        (instant,) = struct.unpack_from(">d", value, place)
        struct.pack_into(">d", shifted, place, instant and instant - seconds * 1_000_000)
    return bytes(shifted)


@pytest.fixture
def server() -> Iterator[Redis]:
    """A client of the tests' own."""
    with Redis.from_url(REDIS) as client:
        yield client


@pytest.fixture(autouse=True)
def cache(settings: Settings) -> None:
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"},
        "redis": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": REDIS},
    }


@pytest.fixture
def store(cache: None, server: Redis) -> Iterator[RedisStore]:
    """A store of its own, so that tests may run side by side."""
    store = RedisStore(cache="redis", prefix=f"test-{uuid4()}")
    yield store
    for name in names(store, server):
        server.delete(name)
    store.close()


def names(store: RedisStore, server: Redis) -> list[bytes]:
    return list(server.scan_iter(f"*{store.prefix}:*", count=1000))


def read(server: Redis, name: bytes) -> bytes:
    value = server.get(name)
    assert isinstance(value, bytes)
    return value


class TestRedisStore(StoreContract):
    costs: ClassVar = {
        **dict.fromkeys(("claim", "ours", "busy", "mismatch", "settle", "replay", "release", "late settle"), 1),
        **dict.fromkeys(("takeover", "next attempt", "new life"), 2),
        **dict.fromkeys(("renew", "renew many", "look"), 1),
    }

    def elapse(self, store: RedisStore, seconds: float) -> None:
        with Redis.from_url(REDIS) as client:
            for name in names(store, client):
                client.set(name, shift(read(client, name), seconds), keepttl=True)

    def vanish(self, store: RedisStore, ticket: Ticket) -> None:
        with Redis.from_url(REDIS) as client:
            client.delete(store._name(ticket.id))

    def elsewhere(self, store: RedisStore) -> Callable[[], BaseStore]:
        return partial(redis_store, settings.CACHES, {"cache": "redis", "prefix": store.prefix, "timeout": 5})

    @contextmanager
    def trips(self, store: RedisStore) -> Iterator[list[str]]:
        with pytest.MonkeyPatch.context() as patch:
            yield packets(patch)


# ------------------------------------------------------------------------------------------------------------- trips


def packets(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect what connections send, a packet an entry, by the name of its first command."""
    sent: list[str] = []
    send, asend = Connection.send_packed_command, AsyncConnection.send_packed_command

    def name(command: Any) -> str:
        return b"".join([command] if isinstance(command, bytes) else command).split(b"\r\n")[2].decode()

    def counted(self: Connection, command: Any, check_health: bool = True) -> None:
        sent.append(name(command))
        send(self, command, check_health)

    async def acounted(self: AsyncConnection, command: Any, check_health: bool = True) -> None:
        sent.append(name(command))
        await asend(self, command, check_health)

    monkeypatch.setattr(Connection, "send_packed_command", counted)
    monkeypatch.setattr(AsyncConnection, "send_packed_command", acounted)
    return sent


@pytest.fixture
def trips(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect what the store's connections send, once they are open."""
    store.claim(make_ticket(key="warm"))  # connected, and the scripts are known
    store.settle(make_ticket(key="warm"), settled_by(make_ticket()))
    store.look(make_ticket().id)
    return packets(monkeypatch)


def settled_by(ticket: Ticket, status: Status = Status.COMPLETED) -> Settlement:
    return Settlement(status=status, fence=ticket.owner, attempt=1, digest=ticket.digest, outcome=Outcome(status=201))


def test_each_verb_is_one_trip(store: RedisStore, trips: list[str]) -> None:
    """Claim, settle, replay, renewal of many, look: one packet each. A takeover is two."""
    ticket, other = make_ticket(), make_ticket(key="other")
    for verb, sent in [
        (lambda: store.claim(ticket), ["EVALSHA"]),
        (lambda: store.claim(other), ["EVALSHA"]),
        (lambda: store.renew([ticket, other]), ["EVAL"]),
        (lambda: store.settle(ticket, settled_by(ticket)), ["EVALSHA"]),
        (lambda: store.claim(make_ticket()), ["EVALSHA"]),
        (lambda: store.look(ticket.id), ["EVALSHA"]),
        (lambda: store.settle(other, settled_by(other, Status.FREE)), ["EVALSHA"]),
        (lambda: store.claim(make_ticket(key="other")), ["EVALSHA", "EVALSHA"]),
        (lambda: store.purge(limit=10), []),
    ]:
        trips.clear()
        verb()
        assert trips == sent


def test_scripts_survive_a_flush(store: RedisStore, server: Redis) -> None:
    """A restart, a failover or SCRIPT FLUSH costs one trip, and no error."""
    ticket = make_ticket()
    store.claim(ticket)
    server.script_flush()
    assert store.settle(ticket, settled_by(ticket)) is True
    server.script_flush()
    assert async_to_sync(store.aclaim)(make_ticket()).status is Status.COMPLETED


# ---------------------------------------------------------------------------------------------------------- the value


def test_a_record_is_small(store: RedisStore, server: Redis) -> None:
    """At most 450 bytes over the body, as Redis counts them."""
    ticket, body = make_ticket(key=str(uuid4())), os.urandom(1000)
    store.claim(ticket)
    store.settle(ticket, replace(settled_by(ticket), outcome=Outcome(status=201, body=body)))
    (name,) = names(store, server)
    assert (server.memory_usage(name) or 0) - len(body) <= 450 + len(store.prefix)  # a long prefix, in tests


def test_redis_deletes_what_has_expired(store: RedisStore, server: Redis) -> None:
    """Each value dies with its record: after its retention, or its lease where that is longer."""
    brief, leased = make_ticket(key="brief", ttl=60, lease=30), make_ticket(key="leased", ttl=60, lease=300)
    left = {}
    for ticket in (brief, leased):
        store.claim(ticket)
        (left[ticket.key],) = (server.pttl(name) for name in names(store, server) if ticket.id.hex in name.decode())
    assert 59_000 < left["brief"] <= 60_001
    assert 299_000 < left["leased"] <= 300_001
    store.settle(leased, settled_by(leased))
    (name,) = (name for name in names(store, server) if leased.id.hex in name.decode())
    assert 59_000 < server.pttl(name) <= 60_001


@pytest.mark.parametrize(
    "forge",
    [
        lambda value: b"",
        lambda value: b"no record",
        lambda value: bytes(payload.SEAL) + value[payload.SEAL :],
        lambda value: value[:-1] + b"!",
        lambda value: value[: payload.SEAL] + b"\x09" + value[payload.SEAL + 1 :],
        lambda value: value + b"more",
    ],
    ids=["empty", "other", "unsealed", "body", "version", "longer"],
)
def test_a_forged_value_is_not_there(store: RedisStore, server: Redis, forge: Callable[[bytes], bytes]) -> None:
    """Who can write to Redis can make a key forget, and cannot make it answer."""
    ticket = make_ticket()
    store.claim(ticket)
    store.settle(ticket, settled_by(ticket))
    (name,) = names(store, server)
    server.set(name, forge(read(server, name)))
    assert store.look(ticket.id) is None
    again = make_ticket()
    assert store.claim(again).owner == again.owner


def test_a_record_of_another_key_is_not_there(store: RedisStore, server: Redis) -> None:
    """A genuine answer, moved to another key, is none."""
    one, other = make_ticket(key="one"), make_ticket(key="other")
    store.claim(one)
    store.settle(one, settled_by(one))
    (name,) = names(store, server)
    server.set(name.decode().replace(one.id.hex, other.id.hex), read(server, name))
    assert store.look(other.id) is None


def test_a_rotated_secret(store: RedisStore, settings: Settings) -> None:
    """Records of the old secret hold while it is among the fallbacks."""
    ticket = make_ticket()
    store.claim(ticket)
    store.settle(ticket, settled_by(ticket))
    old, settings.SECRET_KEY = settings.SECRET_KEY, "a new secret"
    assert store.look(ticket.id) is None
    settings.SECRET_KEY_FALLBACKS = [old]
    assert store.claim(make_ticket()).status is Status.COMPLETED


# --------------------------------------------------------------------------------------------------------- as a front


def test_a_front_keeps_copies(store: RedisStore, server: Redis) -> None:
    """What is put is peeked at, dies in time, and is no claim."""
    ticket = make_ticket()
    store.claim(ticket)
    store.settle(ticket, settled_by(ticket))
    record = store.look(ticket.id)
    assert record is not None
    other = RedisStore(cache="redis", prefix=store.prefix + ":other")
    other.put(record, seconds=5)
    (name,) = (name for name in names(store, server) if b":other" in name)
    assert 4_000 < server.pttl(name) <= 5_000
    for seen in (other.peek(ticket.id), async_to_sync(other.apeek)(ticket.id)):
        assert seen is not None
        assert replace(seen, read_at=record.read_at) == record
    assert other.claim(make_ticket()).status is Status.RUNNING
    other.drop(ticket.id)
    assert other.peek(ticket.id) is None


# ------------------------------------------------------------------------------------------- settings and connections


def test_another_cache_is_refused(settings: Settings) -> None:
    """At the first use, with what to type."""
    with pytest.raises(ImproperlyConfigured, match=r"django_redis\.cache\.RedisCache"):
        RedisStore(cache="default").claim(make_ticket())


def test_the_caches_own_timeouts_stay(store: RedisStore) -> None:
    """Ours are on connections of our own: the project's cache keeps its pool."""
    store.claim(make_ticket())
    theirs = get_redis_connection("redis").connection_pool
    ours = store._client._sync.connection_pool
    assert ours is not theirs
    assert ours.connection_kwargs["socket_timeout"] == 0.4
    assert theirs.connection_kwargs.get("socket_timeout") != 0.4


@pytest.mark.parametrize("pool", ["ConnectionPool", "BlockingConnectionPool"])
def test_pools(store: RedisStore, settings: Settings, pool: str) -> None:
    """The project's kind of pool, its size and its further settings are kept."""
    settings.CACHES = {
        "pooled": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": REDIS,
            "KEY_PREFIX": "mine",
            "OPTIONS": {
                "CONNECTION_POOL_CLASS": f"redis.connection.{pool}",
                "CONNECTION_POOL_KWARGS": {"max_connections": 3, "health_check_interval": 30},
            },
        }
    }
    pooled = RedisStore(cache="pooled", prefix=store.prefix)
    assert pooled.claim(make_ticket()).attempt == 1
    assert pooled._client._sync.connection_pool.max_connections == 3
    assert pooled._client.name("k") == "mine:1:k"
    assert async_to_sync(pooled.aclaim)(make_ticket()).status is Status.RUNNING


def test_a_pool_that_blocks(store: RedisStore, settings: Settings) -> None:
    """More claims than connections wait for one, async as sync."""
    settings.CACHES = {
        "pooled": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": REDIS,
            "OPTIONS": {
                "CONNECTION_POOL_CLASS": "redis.connection.BlockingConnectionPool",
                "CONNECTION_POOL_KWARGS": {"max_connections": 3},
            },
        }
    }
    pooled = RedisStore(cache="pooled", prefix=store.prefix, timeout=5)

    async def claims() -> list[Any]:
        return await asyncio.gather(*(pooled.aclaim(make_ticket(key=str(number))) for number in range(20)))

    assert [record.attempt for record in asyncio.run(claims())] == [1] * 20


def test_loops_that_ended_are_forgotten(store: RedisStore) -> None:
    """Async views under WSGI have an event loop each."""
    for number in range(10):
        async_to_sync(store.aclaim)(make_ticket(key=str(number)))
    assert len(store._client._of_loop) <= 2


def test_a_lease_that_was_renewed_meanwhile(store: RedisStore) -> None:
    """Whoever saw it lapse takes it only if it still has."""
    ticket = make_ticket(lease=0)
    record = store.claim(ticket)
    seen = payload.pack_head(record.status, record.owner, record.attempt)
    thief = make_ticket()
    terms: Any = {"status": Status.RUNNING, "attempt": 2, "digest": thief.digest, "life": False}
    taking = store._change(store._name(ticket.id), thief, seen, **terms, lease=30, ttl=60)
    assert store.renew([replace(ticket, lease=300)]) == {ticket.owner}
    assert store._client.ask(taking) is None
    assert store.claim(make_ticket()).owner == ticket.owner


def test_a_loop_closes_its_connections(store: RedisStore) -> None:
    """Each event loop has a client of its own, which ends with it: nothing is left open, in an ASGI server or a test."""
    clients = []

    async def claims() -> None:
        await asyncio.gather(*(store.aclaim(make_ticket(key=str(number))) for number in range(20)))
        clients.append(await store._client._async())

    asyncio.run(claims())
    async_to_sync(claims)()
    assert clients[0] is not clients[1]
    for client in clients:
        assert not any(connection.is_connected for connection in client.connection_pool._available_connections)
