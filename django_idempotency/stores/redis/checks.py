"""Checks of the cache under a Redis store, and of its server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.core.cache import caches
from django.core.checks import CheckMessage

from ..check_messages import Finding, closest, shown


class E018(Finding):
    """IDEMPOTENCY["STORES"]["%(alias)s"] keeps its records in the cache "%(cache)s", which CACHES
    does not have.

    Type "OPTIONS": {"cache": "%(close)s"}, or add CACHES["%(cache)s"] = {"BACKEND":
    "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:6379/1"}.
    """


class E019(Finding):
    """IDEMPOTENCY["STORES"]["%(alias)s"] keeps its records in CACHES["%(cache)s"], which is not a
    django-redis cache: %(problem)s.

    Type CACHES["%(cache)s"] = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION":
    "redis://127.0.0.1:6379/1"}, or "OPTIONS": {"cache": …} with one that is.
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


def check_cache(alias: str, cache: str) -> Iterator[CheckMessage]:
    """Check that the cache exists, and is a django-redis cache."""
    if cache not in caches.settings:
        usable = [name for name in caches.settings if cache_problem(name) is None]
        yield E018(alias=alias, cache=cache, close=closest(cache, usable or caches.settings))
    elif (problem := cache_problem(cache)) is not None:
        yield E019(alias=alias, cache=cache, problem=problem)


def cache_problem(name: str) -> str | None:
    """Return why a cache cannot hold the records of a Redis store, or `None` if it can."""
    try:
        cache = caches[name]
        if hasattr(getattr(cache, "client", None), "connection_factory"):
            return None
    except Exception as error:  # noqa: BLE001 - a third-party backend
        return shown(error)
    return f"it is {type(cache).__module__}.{type(cache).__qualname__}"


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
        yield W061(
            alias=alias, policy=policy, maxmemory=server.get("maxmemory_human") or f"{limit} bytes"
        )
    if str(server.get("aof_enabled", 1)) == "0":
        yield W062(alias=alias)
