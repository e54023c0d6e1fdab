"""The Redis store keeps the contract, on a real server; and what only it promises."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import ImproperlyConfigured
from pytest_django import Settings
from redis import Redis

from django_idempotency.core import payload, rules
from django_idempotency.core.records import Guarantee, Record, Status
from django_idempotency.errors import LostRace, StoreUnavailable
from django_idempotency.stores.redis import RedisStore
from django_idempotency.testing.contract import StoreContract
from django_idempotency.testing.tickets import make_ticket

from ..services import REDIS, needs_redis

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
    return list(server.scan_iter(f"*{store.prefix}:*"))


@contextmanager
def asked(server: Redis) -> Iterator[list[str]]:
    """Collect the commands that reach the server from elsewhere, but for those of scripts and of connecting."""
    commands: list[str] = []
    marker, mine = uuid4().hex, server.client_id()
    with server.monitor() as monitor:
        yield commands
        server.echo(marker)
        for seen in monitor.listen():
            if marker in seen["command"]:
                break
            if seen["client_type"] != "lua" and not seen["command"].startswith(("CLIENT", "HELLO", "SELECT")):
                commands.append(seen["command"].split()[0])
    assert mine


class TestRedisStore(StoreContract):
    def elapse(self, store: RedisStore, seconds: float) -> None:
        with Redis.from_url(REDIS) as client:
            for name in names(store, client):
                client.set(name, shift(client.get(name), seconds), keepttl=True)
