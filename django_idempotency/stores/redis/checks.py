"""Checks of how a Redis store reaches its server, and of that server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.core.checks import CheckMessage

from ..check_messages import Finding, one_line
from .connecting import pool_of


class E018(Finding):
    """IDEMPOTENCY["STORES"]["%(alias)s"] cannot make connections to its Redis: %(problem)s.

    Type python -m pip install "./django-idempotency[redis]", and "OPTIONS": {"url":
    "redis://127.0.0.1:6379/1"}; or {"cache": …} with the alias of a cache whose "BACKEND" is
    django.core.cache.backends.redis.RedisCache, django_redis.cache.RedisCache or
    django_valkey.cache.ValkeyCache.
    """


class E051(Finding):
    """The Redis of IDEMPOTENCY["STORES"]["%(alias)s"] is version %(version)s, but the store needs 5
    or later.

    Type redis-cli INFO server to see which server responds, and move the records to Redis 5 or
    later.
    """


class W061(Finding):
    """The Redis of IDEMPOTENCY["STORES"]["%(alias)s"] evicts keys when its %(maxmemory)s are full
    (maxmemory-policy is "%(policy)s"): the work of an evicted record runs again.

    Type redis-cli CONFIG SET maxmemory-policy noeviction, and the same in redis.conf (or in the
    parameters of a managed service). If a cache needs eviction, put the records into another Redis.
    """


class W062(Finding):
    """The Redis of IDEMPOTENCY["STORES"]["%(alias)s"] writes no append-only file (appendonly is
    "no"): a restart loses records, and their work runs again.

    Type redis-cli CONFIG SET appendonly yes, and the same in redis.conf. If the service persists
    them in another way, %(silence)s.
    """


#: The oldest version that runs our scripts: they call TIME before a write.
REDIS = 5


def check_place(alias: str, place: str) -> Iterator[CheckMessage]:
    """Check that the store can make its connections, without opening one."""
    try:
        pool = pool_of(place, timeout=1)
        pool.connection_class(**pool.connection_kwargs)
    except Exception as error:  # noqa: BLE001 - a cache of another package
        # "Port could not be cast to integer value as 'secret'": it may be a part of a password.
        yield E018(alias=alias, problem=one_line(error).partition(" as '")[0])


def check_server(
    alias: str, server: Mapping[str, Any], *, copies_only: bool
) -> Iterator[CheckMessage]:
    """Check that a server runs our scripts and keeps records, by its INFO."""
    version = str(server.get("redis_version", ""))
    major = version.partition(".")[0]
    if major.isdigit() and int(major) < REDIS:
        yield E051(alias=alias, version=version)
    if copies_only:
        return  # copies may be evicted at any time
    policy = server.get("maxmemory_policy", "noeviction")
    limit = int(server.get("maxmemory", 0))
    if limit and policy != "noeviction":
        yield W061(alias=alias, policy=policy, maxmemory=server.get("maxmemory_human", limit))
    if str(server.get("aof_enabled", 1)) == "0":
        yield W062(alias=alias)
