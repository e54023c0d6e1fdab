"""The Redis store keeps the contract, on a real server, and its own promises."""

from __future__ import annotations

import asyncio
import os
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import pytest
from django.conf import settings
from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured
from django.utils.crypto import salted_hmac
from django_redis import get_redis_connection
from pytest_django import Settings
from redis import Redis
from redis.connection import BlockingConnectionPool, Connection
from redis.exceptions import ConnectionError as Disconnected

from django_idempotency.contrib.steps.durable import Execution, handed_over, resumed
from django_idempotency.core import conclusions, interventions, rules
from django_idempotency.core.hashing import first_operation
from django_idempotency.core.records import Outcome, Settlement, Status, Ticket
from django_idempotency.engine import threads
from django_idempotency.errors import RecordUnreadable, StoreRefused, StoreUnavailable
from django_idempotency.stores.base import BaseStore
from django_idempotency.stores.key_value import packing, signing
from django_idempotency.stores.layered import LayeredStore
from django_idempotency.stores.layered.caches import CircuitBreaker
from django_idempotency.stores.memory import MemoryStore
from django_idempotency.stores.orm import ORMStore
from django_idempotency.stores.redis import RedisStore
from django_idempotency.stores.redis.client import Call
from django_idempotency.stores.redis.connecting import pool_of
from django_idempotency.stores.redis.layout import SCRIPTS, script
from django_idempotency.testing import StoreContract
from django_idempotency.testing.tickets import make_ticket

from ...support.services import REDIS, needs_redis, program
from ...support.store_servers import RedisServer, free_port, running
from ..elsewhere import redis_store
from ..helpers import committed

pytestmark = needs_redis

FIXED = struct.Struct(">" + "".join(packing.FIELDS.values()))
INSTANTS = [name for name, kind in packing.FIELDS.items() if kind == "d"]


def altered(value: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    """Return a packed record with changed fields of fixed length."""
    fields = dict(zip(packing.FIELDS, FIXED.unpack_from(value), strict=True))
    change(fields)
    return FIXED.pack(*fields.values()) + value[FIXED.size :]


def shift(value: bytes, seconds: float) -> bytes:
    """Return a packed record as if it had been written so many seconds earlier."""
    return altered(
        value,
        lambda fields: fields.update(
            {name: fields[name] and fields[name] - seconds * 1_000_000 for name in INSTANTS}
        ),
    )


@pytest.fixture
def server() -> Iterator[Redis]:
    """The tests' own client."""
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
    """A separate store, so that tests may run in parallel."""
    # A busy machine is not an outage.
    yield from emptied(RedisStore(cache="redis", prefix=f"test-{uuid4()}", timeout=5), server)


def emptied(store: RedisStore, server: Redis) -> Iterator[RedisStore]:
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
    """At a URL. `test_cluster` has the same for a cache."""

    @pytest.fixture
    def store(self, server: Redis) -> Iterator[RedisStore]:
        yield from emptied(RedisStore(url=REDIS, prefix=f"test-{uuid4()}", timeout=5), server)

    costs: ClassVar = {
        **dict.fromkeys(
            ("claim", "ours", "busy", "mismatch", "settle", "replay", "release", "late settle"), 1
        ),
        **dict.fromkeys(("takeover", "next attempt", "new life"), 2),
        **dict.fromkeys(("renew", "renew many", "get"), 1),
    }

    def elapse(self, store: RedisStore, seconds: float) -> None:
        with Redis.from_url(REDIS) as client:
            for name in names(store, client):
                client.set(name, shift(read(client, name), seconds), keepttl=True)

    def vanish(self, store: RedisStore, ticket: Ticket) -> None:
        with Redis.from_url(REDIS) as client:
            client.delete(store._name(ticket.id))

    def elsewhere(self, store: RedisStore) -> Callable[[], BaseStore]:
        return partial(
            redis_store, settings.CACHES, {"url": REDIS, "prefix": store.prefix, "timeout": 5}
        )

    @contextmanager
    def trips(self, store: RedisStore) -> Iterator[list[str]]:
        with pytest.MonkeyPatch.context() as patch:
            yield packets(patch)


# ------------------------------------------------------------------------ a primary that steps down


@pytest.mark.parametrize(
    ("error", "left"), [("READONLY You can't write", True), ("ERR other", False)]
)
def test_idle_connections_to_a_replica_are_closed(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch, error: str, left: bool
) -> None:
    """If the server has become a replica, idle connections to it are closed: its address may lead
    to the new primary.
    """
    monkeypatch.setitem(SCRIPTS, "get", script(f'return redis.error_reply("{error}")'))
    closed: list[bool] = []
    # Its own: other stores of the process may end meanwhile.
    pool = store._client._server.connection_pool
    monkeypatch.setattr(
        pool, "disconnect", lambda inuse_connections=True: closed.append(inuse_connections)
    )
    with pytest.raises(StoreRefused):
        store.get(make_ticket().id)
    assert closed == [False] * left


# -------------------------------------------------------------------------------------------- trips


def packets(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect what connections send, one entry per packet, by the name of its first command."""
    sent: list[str] = []
    send = Connection.send_packed_command

    def name(command: Any) -> str:
        return (
            b"".join([command] if isinstance(command, bytes) else command)
            .split(b"\r\n")[2]
            .decode()
        )

    def counted(self: Connection, command: Any, check_health: bool = True) -> None:
        # It may serve another test's leases.
        if not threading.current_thread().name.startswith("django-idempotency"):
            sent.append(name(command))
        send(self, command, check_health)

    monkeypatch.setattr(Connection, "send_packed_command", counted)
    return sent


@pytest.fixture
def trips(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect what the store's connections send, once they are open."""
    store.claim(make_ticket(key="warm"))  # connected, and the scripts are known
    store.settle(make_ticket(key="warm"), settled_by(make_ticket()))
    store.get(make_ticket().id)
    return packets(monkeypatch)


def settled_by(ticket: Ticket, status: Status = Status.COMPLETED) -> Settlement:
    return Settlement(
        status=status,
        fence=ticket.owner,
        attempt=1,
        digest=ticket.digest,
        operation=first_operation(ticket),
        outcome=Outcome(status=201),
    )


def test_each_verb_is_one_trip(store: RedisStore, trips: list[str]) -> None:
    """Claim, settle, replay, renewal of many and lookup take one packet each.

    A takeover takes two.
    """
    ticket, other = make_ticket(), make_ticket(key="other")
    for verb, sent in [
        (lambda: store.claim(ticket), ["EVALSHA"]),
        (lambda: store.claim(other), ["EVALSHA"]),
        (lambda: store.renew([ticket, other]), ["EVAL"]),
        (lambda: store.settle(ticket, settled_by(ticket)), ["EVALSHA"]),
        (lambda: store.claim(make_ticket()), ["EVALSHA"]),
        (lambda: store.get(ticket.id), ["EVALSHA"]),
        (lambda: store.settle(other, settled_by(other, Status.FREE)), ["EVALSHA"]),
        (lambda: store.claim(make_ticket(key="other")), ["EVALSHA", "EVALSHA"]),
        (lambda: store.purge(limit=10), []),
    ]:
        trips.clear()
        verb()
        assert trips == sent


def test_scripts_survive_a_flush(settings: Settings, tmp_path: Path) -> None:
    """A restart, a failover or SCRIPT FLUSH costs two trips, and no error."""
    # Others count trips on ours.
    with (
        running(RedisServer(tmp_path)) as server,
        Redis(port=server.port) as client,
    ):
        settings.CACHES = {
            "redis": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": server.url}
        }
        store, ticket = RedisStore(cache="redis", timeout=5), make_ticket()
        store.claim(ticket)
        client.script_flush()
        with pytest.MonkeyPatch.context() as patch:
            sent = packets(patch)
            assert store.settle(ticket, settled_by(ticket)) is True
            assert sent == ["EVALSHA", "EVAL"]
        store.close()


# ---------------------------------------------------------------------------------------- the value


def test_a_record_is_small(store: RedisStore, server: Redis) -> None:
    """A record takes at most 450 bytes more than its body, as Redis counts them."""
    ticket, body = make_ticket(key=str(uuid4())), os.urandom(1000)
    store.claim(ticket)
    store.settle(ticket, settled_by(ticket)._replace(outcome=Outcome(status=201, body=body)))
    (name,) = names(store, server)
    # Test prefixes are long.
    assert (server.memory_usage(name) or 0) - len(body) <= 450 + len(store.prefix)


def test_redis_deletes_what_has_expired(store: RedisStore, server: Redis) -> None:
    """Each value expires with its record: after its retention, or its lease if that is longer."""
    brief, leased = (
        make_ticket(key="brief", ttl=60, lease=30),
        make_ticket(key="leased", ttl=60, lease=300),
    )
    left = {}
    for ticket in (brief, leased):
        store.claim(ticket)
        (left[ticket.key],) = (
            server.pttl(name) for name in names(store, server) if ticket.id.hex in name.decode()
        )
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
        lambda value: bytes(packing.SIGNATURE) + value[packing.SIGNATURE :],
        lambda value: value[:-1] + b"!",
        lambda value: altered(value, lambda fields: fields.update(version=9)),
        lambda value: value + b"more",
        lambda value: value.replace(b"/api/charges/", b"/api/refunds/"),
        lambda value: value.replace(b"5ec4e71d", b"5ec4e71e"),
    ],
    ids=["empty", "other", "unsealed", "body", "version", "longer", "path", "secret"],
)
def test_a_forged_value_is_not_there(
    store: RedisStore, server: Redis, forge: Callable[[bytes], bytes]
) -> None:
    """An attacker with write access to Redis can make a key forget, but cannot forge a response."""
    ticket = make_ticket()
    store.claim(ticket)
    store.settle(ticket, settled_by(ticket))
    (name,) = names(store, server)
    assert forge(read(server, name)) != read(server, name)
    server.set(name, forge(read(server, name)))
    assert store.get(ticket.id) is None
    again = make_ticket()
    assert store.claim(again).owner == again.owner


def test_a_record_of_another_key_is_not_there(store: RedisStore, server: Redis) -> None:
    """A genuine response that is moved to another key is rejected."""
    one, other = make_ticket(key="one"), make_ticket(key="other")
    store.claim(one)
    store.settle(one, settled_by(one))
    (name,) = names(store, server)
    server.set(name.decode().replace(one.id.hex, other.id.hex), read(server, name))
    assert store.get(other.id) is None


def test_a_birth_is_sealed_again(store: RedisStore, trips: list[str]) -> None:
    """A later attempt keeps the key's first values, under its own signature: one more trip if sent
    otherwise.
    """
    first, second = make_ticket(path="/first/", lease=0), make_ticket(secret_id="rotated")
    store.claim(first)
    assert (store.claim(second).path, store.claim(second).secret_id) == ("/first/", first.secret_id)
    trips.clear()
    assert store.settle(second, settled_by(second)._replace(attempt=2)) is True
    assert trips == ["EVALSHA", "EVALSHA"]
    record = store.get(first.id)
    assert record is not None
    assert (record.status, record.attempt, record.path, record.secret_id) == (
        2,
        2,
        "/first/",
        first.secret_id,
    )


@pytest.mark.parametrize("damage", ["list", "nan", "inf"])
def test_a_damaged_key_costs_no_other_its_lease(
    store: RedisStore, server: Redis, damage: str
) -> None:
    """A process renews all its leases together, and a damaged key makes only its own renewal
    fail.
    """
    hurt, whole = make_ticket(key="hurt"), make_ticket(key="whole")
    for ticket in (hurt, whole):
        store.claim(ticket)
    name = store._name(hurt.id).encode()
    value = read(server, name)
    if damage == "list":
        server.delete(name)
        server.rpush(name, "x")
    else:
        server.set(name, altered(value, lambda fields: fields.update(purge_at=float(damage))))
    assert store.renew([hurt, whole]) == {whole.owner}


def test_a_forged_birth_is_not_sealed(store: RedisStore, server: Redis) -> None:
    """An owner whose record was tampered with has lost it, and does not sign it."""
    ticket = make_ticket()
    store.claim(ticket)
    (name,) = names(store, server)
    server.set(name, read(server, name).replace(b"5ec4e71d", b"5ec4e71e"))
    assert store.settle(ticket, settled_by(ticket)) is False
    assert store.get(ticket.id) is None


@pytest.mark.parametrize("lapsed", [True, False])
def test_a_takeover_whose_answer_was_lost(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch, *, lapsed: bool
) -> None:
    """A closed connection is retried, and the claim finds its own record, still knowing whether it
    was a takeover.
    """
    ask = store._client.ask

    def twice(call: Call) -> Any:
        if call.script == "change":
            ask(call)
        return ask(call)

    first, second = make_ticket(lease=0), make_ticket()
    store.claim(first)
    if not lapsed:
        store.settle(first, settled_by(first, Status.FREE))
    monkeypatch.setattr(store._client, "ask", twice)
    record = store.claim(second)
    assert (record.owner, record.attempt, record.taken) == (second.owner, 2, lapsed)


def test_a_rotated_secret(store: RedisStore, settings: Settings) -> None:
    """Records of the old secret are valid while it is among the fallbacks."""
    ticket = make_ticket()
    store.claim(ticket)
    store.settle(ticket, settled_by(ticket))
    old, settings.SECRET_KEY = settings.SECRET_KEY, "a new secret"
    assert store.get(ticket.id) is None
    settings.SECRET_KEY_FALLBACKS = [old]
    assert store.claim(make_ticket()).status is Status.COMPLETED


@pytest.mark.parametrize("unset", ["", b"", None], ids=repr)
def test_an_empty_fallback_signs_nothing(store: RedisStore, settings: Settings, unset: Any) -> None:
    """An empty fallback, as from an unset variable, is publicly known, so what it signs counts as
    forged.
    """
    ticket = make_ticket()
    store.claim(ticket)
    store.settle(ticket, settled_by(ticket))
    old, settings.SECRET_KEY_FALLBACKS = settings.SECRET_KEY, [unset]
    settings.SECRET_KEY = "a new secret"
    assert store.get(ticket.id) is None
    settings.SECRET_KEY_FALLBACKS = [unset, old]
    assert store.get(ticket.id) is not None
    if unset is not None:
        assert not signing.is_valid(
            b"forged", salted_hmac(signing._SALT, b"forged", unset, algorithm="sha256").digest()
        )


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("crashed", [True, False])
def test_a_takeover_without_replicas_is_one_again(
    store: RedisStore, *, crashed: bool, again: bool
) -> None:
    """Its owner crashed, and the next call must know that.

    `again`: an earlier try's response was lost.
    """
    safe = RedisStore(cache="redis", prefix=store.prefix, min_replicas=1, timeout=0.3)
    first, second = make_ticket(lease=0), make_ticket()
    store.claim(first)
    if not crashed:
        freed = interventions.released(store.claim(first))
        assert freed is not None
        assert store.settle(first, freed)
    if again:
        store.claim(second)
    with pytest.raises(StoreUnavailable, match="replicas"):
        safe.claim(second)
    record = store.claim(third := make_ticket())
    assert (record.owner, record.attempt, record.taken) == (third.owner, 3, crashed or again)


def test_a_suspended_record_is_not_resumed_without_replicas(store: RedisStore) -> None:
    """A failover could suspend it again beside a resumed call, so a resume without replicas is
    refused.
    """
    safe = RedisStore(cache="redis", prefix=store.prefix, min_replicas=1, timeout=0.3)
    owner, waking = make_ticket(), make_ticket()
    record = store.claim(owner)
    asleep = Execution("order-17").suspending_ticket(record, owner)
    with pytest.raises(StoreUnavailable, match="replicas"):
        handed_over(safe, asleep, conclusions.handover(record, asleep))
    seen = store.claim(waking)
    assert seen.owner == asleep.owner  # still written
    with pytest.raises(StoreUnavailable, match="replicas"):
        resumed(safe, waking, seen)


# --------------------------------------------------------------------------------------- as a front


def test_a_front_keeps_copies(store: RedisStore, server: Redis) -> None:
    """A copy can be looked up, expires in time, and is not a claim."""
    ticket = make_ticket()
    store.claim(ticket)
    store.settle(ticket, settled_by(ticket))
    record = store.get(ticket.id)
    assert record is not None
    other = RedisStore(cache="redis", prefix=store.prefix + ":other", timeout=5)
    other.put(record, seconds=5)
    (name,) = (name for name in names(store, server) if b":other" in name)
    assert 4_000 < server.pttl(name) <= 5_000
    instants = ("read_at", "lease_until", "created_at", "completed_at", "expires_at", "purge_at")
    seen = other.peek(ticket.id)
    assert seen is not None
    assert seen._replace(**{name: getattr(record, name) for name in instants}) == record
    assert other.claim(make_ticket()).status is Status.RUNNING
    other.drop(ticket.id)
    assert other.peek(ticket.id) is None


@committed
def test_a_front_answers_in_one_trip(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
) -> None:
    """Before the ORM store a replay or a busy key takes one packet and no statement."""
    layered = LayeredStore(front=store, authority=ORMStore())
    done, running = make_ticket(key="done"), make_ticket(key="running")
    for ticket in (done, running):
        layered.claim(ticket)
    layered.settle(done, settled_by(done))
    retries = {
        Status.COMPLETED: make_ticket(key="done"),
        Status.RUNNING: make_ticket(key="running"),
    }

    sent = packets(monkeypatch)

    with django_assert_num_queries(0):
        for status, retry in retries.items():
            sent.clear()
            assert (layered.claim(retry).status, sent) == (status, ["EVALSHA"])


@pytest.mark.parametrize("skew", [-3600, 0, 3600])
def test_a_front_with_another_clock(store: RedisStore, skew: float) -> None:
    """The copy's deadlines are as far away as the record's, however much the two servers' clocks
    differ.
    """
    ticket = make_ticket(lease=30, ttl=600)
    running = rules.born(ticket, ticket.now + timedelta(seconds=skew))
    done = running._replace(
        status=Status.COMPLETED, completed_at=running.created_at, outcome=Outcome(status=201)
    )
    for record in (running, done):
        store.put(record, seconds=5)
        seen = store.peek(ticket.id)
        assert seen is not None
        assert 28 < (seen.lease_until - seen.read_at).total_seconds() <= 30
        assert 598 < (seen.expires_at - seen.read_at).total_seconds() <= 600
        assert seen.completed_at == (seen.created_at if record is done else None)


def test_a_front_that_refuses_a_key(store: RedisStore, server: Redis) -> None:
    """A foreign value under a key is a miss, not an outage: the other keys are still replayed."""
    layered = LayeredStore(front=store, authority=MemoryStore())
    one, other = make_ticket(key="one"), make_ticket(key="other")
    for ticket in (one, other):
        layered.claim(ticket)
        layered.settle(ticket, settled_by(ticket))
    name = store._front_name(one.id)
    server.delete(name)
    server.lpush(name, "a list")
    with pytest.raises(StoreRefused):
        store.peek(one.id)
    assert layered.front.peek(one.id) is None
    assert layered.front.peek(other.id) is not None


# ------------------------------------------------------------------------- settings and connections


def test_another_cache_is_refused(settings: Settings) -> None:
    """It is refused at the first use, with what to type."""
    with pytest.raises(ImproperlyConfigured, match=r'Give the store a "url"'):
        RedisStore(cache="default").claim(make_ticket())


def test_a_timeout_is_not_retried() -> None:
    """Whatever the options ask for: the call would take twice as long, and be sent twice."""
    pool = pool_of(f"{REDIS}?retry_on_timeout=true", timeout=1)
    assert pool.make_connection().retry._supported_errors == (Disconnected,)


def test_the_caches_own_timeouts_stay() -> None:
    """Our timeouts apply to our own connections: the project's cache keeps its pool."""
    store = RedisStore(cache="redis")
    theirs = get_redis_connection("redis").connection_pool
    ours = store._client._server.connection_pool
    assert ours is not theirs
    assert ours.connection_kwargs["socket_timeout"] == 0.4
    assert theirs.connection_kwargs.get("socket_timeout") != 0.4


@pytest.mark.parametrize("location", [REDIS, [REDIS, "redis://127.0.0.1:1/0"], f"{REDIS};redis://"])
def test_a_cache_of_djangos_own(store: RedisStore, settings: Settings, location: Any) -> None:
    """Its first server, which it writes to, and its OPTIONS, but for the timeouts."""
    settings.CACHES["django"] = {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": location,
        "KEY_PREFIX": "mine",
        "OPTIONS": {
            "pool_class": "redis.BlockingConnectionPool",
            "parser_class": "redis._parsers._RESP2Parser",
            "max_connections": 3,
            "socket_timeout": 9,
            "decode_responses": True,
        },
    }
    pool = assert_served("django", store)
    assert (type(pool), pool.max_connections, pool.timeout) == (BlockingConnectionPool, 3, 5)


def test_a_cache_of_django_valkey(store: RedisStore, settings: Settings) -> None:
    """Its address and its OPTIONS, for connections that are redis-py's."""
    pytest.importorskip("django_valkey")
    settings.CACHES["valkey"] = {
        "BACKEND": "django_valkey.cache.ValkeyCache",
        "LOCATION": REDIS.replace("redis", "valkey", 1),
        "KEY_PREFIX": "mine",
        "OPTIONS": {
            "CONNECTION_POOL_CLASS": "valkey.connection.BlockingConnectionPool",
            "CONNECTION_POOL_KWARGS": {"max_connections": 3},
            "SOCKET_TIMEOUT": 9,
        },
    }
    pool = assert_served("valkey", store)
    assert (type(pool), pool.max_connections, pool.timeout) == (BlockingConnectionPool, 3, 5)


def assert_served(cache: str, store: RedisStore) -> Any:
    """A store of a cache keeps records under the cache's prefix; the cache works as before.

    Return the store's pool.
    """
    ours = RedisStore(cache=cache, prefix=store.prefix, timeout=5)
    ticket = make_ticket()
    assert ours.claim(ticket).attempt == 1
    assert ours.settle(ticket, settled_by(ticket))
    again = RedisStore(cache=cache, prefix=store.prefix, timeout=5)
    assert again.claim(make_ticket()).status is Status.COMPLETED
    assert again.location == ours.location
    assert ours._name(ticket.id) == f"mine:1:{store.prefix}:{ticket.id.hex}"
    caches[cache].set(f"{store.prefix}:theirs", "", timeout=60)
    pool = ours._client._server.connection_pool
    assert pool.connection_kwargs["socket_timeout"] == 5
    return pool


def test_options_of_a_url(store: RedisStore) -> None:
    """redis-py's own, but for what the store has decided."""
    url = f"{REDIS}?max_connections=3&client_name=keys&socket_timeout=9&decode_responses=True"
    ours = RedisStore(url=url, prefix=store.prefix, timeout=5)
    assert ours.claim(make_ticket()).attempt == 1
    assert [ticket.id for batch in ours.scan() for ticket in batch.records] == [make_ticket().id]
    client = ours._client._server
    assert client.client_getname() in ("keys", b"keys")
    assert client.connection_pool.max_connections == 3
    assert client.connection_pool.connection_kwargs["socket_timeout"] == 5


def test_where_a_url_leads(store: RedisStore, server: Redis) -> None:
    """To keys without the prefix of a cache. A prefix that has it finds a cache's records."""
    ticket = make_ticket()
    store.claim(ticket)
    other = RedisStore(url=REDIS, prefix=store.prefix, timeout=5)
    assert other.get(ticket.id) is None
    assert other._name(ticket.id) == f"{store.prefix}:{ticket.id.hex}"
    same = RedisStore(url=REDIS, prefix=f":1:{store.prefix}", timeout=5)
    assert same.claim(make_ticket()).owner == ticket.owner
    assert other.location != same.location
    assert other.location == RedisStore(url=REDIS, prefix=store.prefix).location


def test_a_socket(tmp_path: Path) -> None:
    """unix:// leads to the server that listens there, and its option to a database."""
    socket = tmp_path / "socket"
    with running(RedisServer(tmp_path, "--unixsocket", str(socket))) as server:
        RedisStore(url=f"unix://{socket}?db=1", timeout=5).claim(make_ticket())
        found = RedisStore(url=server.url.replace("/0", "/1"), timeout=5).get(make_ticket().id)
        assert found is not None
        assert found.status is Status.RUNNING


@pytest.mark.skipif(program("openssl") is None, reason="openssl makes the certificate")
def test_tls(tmp_path: Path) -> None:
    """A certificate that nobody vouches for is refused."""
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", key, "-out", certificate),
        ],
        check=True,
        capture_output=True,
    )
    port = free_port()
    encrypted = ["--tls-port", str(port), "--tls-auth-clients", "no"]
    encrypted += ["--tls-cert-file", str(certificate), "--tls-key-file", str(key)]
    url = f"rediss://127.0.0.1:{port}/0"
    with running(RedisServer(tmp_path, *encrypted)):
        vouched = RedisStore(url=f"{url}?ssl_ca_certs={certificate}", timeout=5)
        assert vouched.claim(make_ticket()).attempt == 1
        with pytest.raises(StoreUnavailable):
            RedisStore(url=url, timeout=5).get(make_ticket().id)


@pytest.mark.parametrize("pool", ["ConnectionPool", "BlockingConnectionPool"])
def test_pools(store: RedisStore, settings: Settings, pool: str) -> None:
    """The project's kind of pool, its size and its other settings are kept."""
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
    pooled = RedisStore(cache="pooled", prefix=store.prefix, timeout=5)
    assert pooled.claim(make_ticket()).attempt == 1
    assert pooled._client._server.connection_pool.max_connections == 3
    assert pooled._client.name("k") == "mine:1:k"


def prefixed(key: str, key_prefix: str, version: int) -> str:
    return f"{key_prefix}/{key}/{version}"


def test_a_key_function(store: RedisStore, settings: Settings) -> None:
    """The cache's own KEY_FUNCTION names the keys, whatever it does."""
    settings.CACHES = {
        "named": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": REDIS,
            "KEY_PREFIX": "mine",
            "VERSION": 7,
            "KEY_FUNCTION": f"{__name__}.prefixed",
        }
    }
    named = RedisStore(cache="named", prefix=store.prefix, timeout=5)
    assert [named._client.name(key) for key in ("k", "other")] == ["mine/k/7", "mine/other/7"]
    assert named.claim(make_ticket()).attempt == 1


def test_a_pool_that_blocks(store: RedisStore, settings: Settings) -> None:
    """Claims beyond the number of connections wait for one."""
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
        return await asyncio.gather(
            *(
                threads.in_thread_of(pooled, pooled.claim, make_ticket(key=str(number)))
                for number in range(20)
            )
        )

    assert [record.attempt for record in asyncio.run(claims())] == [1] * 20


def test_a_lease_that_was_renewed_meanwhile(store: RedisStore) -> None:
    """A claim that saw it lapse takes it only if it is still lapsed."""
    ticket = make_ticket(lease=0)
    record = store.claim(ticket)
    thief = make_ticket(lease=30, ttl=60)
    life = packing.pack_life(thief, record.operation)
    takeover = conclusions.handover(record, thief)._replace(attempt=2)
    assert store.renew([ticket._replace(lease=300)]) == {ticket.owner}
    seen = (f"{record.status:d}", str(record.attempt))
    assert store._change(thief, takeover, life, *seen) is None
    assert store.claim(make_ticket()).owner == ticket.owner


def test_a_later_version(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that a later version has signed is not overwritten; a copy in a front counts as
    missing.
    """
    ticket = make_ticket()
    record = store.claim(ticket)
    with monkeypatch.context() as later:
        later.setattr(packing, "VERSION", packing.VERSION + 1)
        settled = conclusions.settlement(
            conclusions.SettledState.COMPLETED,
            ticket,
            rules.Execute(attempt=1),
            fence=record,
            outcome=Outcome(status=201),
            ttl=None,
        )
        assert settled is not None
        assert store.settle(ticket, settled)
        store.put(record, seconds=60)
    for ask in (lambda: store.claim(make_ticket()), lambda: store.get(ticket.id)):
        with pytest.raises(RecordUnreadable):
            ask()
    assert CircuitBreaker(store).peek(ticket.id) is None
    with pytest.raises(RecordUnreadable):
        store.claim(make_ticket())


def test_a_scan_finds_only_its_own_prefix(server: Redis) -> None:
    """Whatever the prefix means to a pattern of Redis; records of other prefixes are not even
    counted.
    """
    prefix = f"scan[{uuid4()}]*?"
    odd, other = (
        RedisStore(cache="redis", prefix=each, timeout=5) for each in (prefix, f"{prefix}x")
    )
    for store in (odd, other):
        for number in range(60):
            store.claim(make_ticket(key=str(number)))
    found = [record.key for batch in odd.scan() for record in batch.records]
    assert sorted(found, key=int) == [str(number) for number in range(60)]
    assert not any(batch.unreadable for batch in odd.scan())
    for store in (odd, other):
        server.delete(
            *(
                name
                for batch in store.scan()
                for name in (store._name(each.id) for each in batch.records)
            )
        )
