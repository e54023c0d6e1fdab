"""Checks of the cache under a Redis store, and of its server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.core.cache import caches
from django.core.checks import CheckMessage

from ..check_messages import closest, finding, shown

#: The oldest version that runs our scripts: they call TIME before a write.
REDIS = 5


def check_cache(alias: str, cache: str) -> Iterator[CheckMessage]:
    """Check that the cache exists, and is a django-redis cache."""
    if cache not in caches.settings:
        usable = [name for name in caches.settings if cache_problem(name) is None]
        yield finding("E018", alias=alias, cache=cache, close=closest(cache, usable or caches.settings))
    elif (problem := cache_problem(cache)) is not None:
        yield finding("E019", alias=alias, cache=cache, problem=problem)


def cache_problem(name: str) -> str | None:
    """Return why a cache cannot hold the records of a Redis store, or `None` if it can."""
    try:
        cache = caches[name]
        if hasattr(getattr(cache, "client", None), "connection_factory"):
            return None
    except Exception as error:  # noqa: BLE001 - a third-party backend
        return shown(error)
    return f"it is {type(cache).__module__}.{type(cache).__qualname__}"


def check_server(alias: str, server: Mapping[str, Any], *, copies_only: bool) -> Iterator[CheckMessage]:
    """Check that a server runs our scripts and keeps records, by its INFO."""
    version = str(server.get("redis_version", ""))
    major = version.partition(".")[0]
    if major.isdigit() and int(major) < REDIS:
        yield finding("E051", alias=alias, version=version)
    if copies_only:
        return  # copies may be evicted at any time
    policy, limit = server.get("maxmemory_policy", "noeviction"), int(server.get("maxmemory", 0))
    if limit and policy != "noeviction":
        yield finding("W061", alias=alias, policy=policy, maxmemory=server.get("maxmemory_human") or f"{limit} bytes")
    if str(server.get("aof_enabled", 1)) == "0":
        yield finding("W062", alias=alias)
