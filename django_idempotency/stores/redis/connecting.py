"""Makes clients like those of a django-redis cache, with timeouts on everything and connections of their own."""

from __future__ import annotations

from typing import Any

from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured

from . import cluster


def cache_of(alias: str) -> Any:
    """Return this thread's cache object, which must be django-redis's."""
    cache: Any = caches[alias]
    if not hasattr(getattr(cache, "client", None), "connection_factory"):
        raise ImproperlyConfigured(
            f'CACHES["{alias}"] is {type(cache).__name__}. RedisStore needs django-redis there: type '
            '"BACKEND": "django_redis.cache.RedisCache".'
        )
    return cache


def new_client(cache: Any, alias: str, *, timeout: float, min_replicas: int) -> Any:
    """Return a client like the cache's, made by the cache's own factory; but with our timeouts and our own pool."""
    from redis.backoff import NoBackoff
    from redis.connection import BlockingConnectionPool
    from redis.exceptions import ConnectionError as Disconnected
    from redis.retry import Retry

    # A closed connection is retried once: the owner token then shows what the first try did. A timeout is not.
    retry = Retry(NoBackoff(), 1, supported_errors=(Disconnected,))
    given = caches.settings[alias].get("OPTIONS") or {}
    options = {
        **given,
        "SOCKET_TIMEOUT": timeout,
        "SOCKET_CONNECT_TIMEOUT": timeout,
        "CONNECTION_POOL_KWARGS": {**given.get("CONNECTION_POOL_KWARGS", {}), "retry": retry},
    }
    if sentinels := options.get("SENTINELS"):  # asking all of them takes the time of one
        patience = timeout / len(sentinels)
        options["SENTINEL_KWARGS"] = {
            **(options.get("SENTINEL_KWARGS") or {}),
            "socket_timeout": patience,
            "socket_connect_timeout": patience,
            "retry": Retry(NoBackoff(), 0),
        }
    theirs = type(cache.client.connection_factory)
    factory: Any = type("OwnFactory", (OwnPool, theirs), {})(options)
    if isinstance(factory.pool_cls, type) and issubclass(factory.pool_cls, BlockingConnectionPool):
        factory.pool_cls_kwargs["timeout"] = timeout
    if cluster.wanted(factory):
        return cluster.connect(factory, _servers(alias), min_replicas=min_replicas)
    return factory.connect(_servers(alias)[0])


def new_async_client(cache: Any, alias: str, *, timeout: float) -> Any:
    """Return the same for an event loop; `None` where a thread must ask: behind Sentinel, and in a cluster."""
    from redis.asyncio import BlockingConnectionPool, ConnectionPool, Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.connection import BlockingConnectionPool as OfThreads
    from redis.exceptions import ConnectionError as Disconnected
    from redis.sentinel import SentinelConnectionPool

    factory = cache.client.connection_factory
    if not isinstance(factory.pool_cls, type) or issubclass(factory.pool_cls, SentinelConnectionPool):
        return None
    if cluster.wanted(factory):
        return None
    given = factory.make_connection_params(_servers(alias)[0]) | factory.pool_cls_kwargs
    for of_sync in ("parser_class", "connection_class", "timeout"):
        given.pop(of_sync, None)
    given |= {
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "retry": Retry(NoBackoff(), 1, supported_errors=(Disconnected,)),
    }
    if issubclass(factory.pool_cls, OfThreads):
        return Redis.from_pool(BlockingConnectionPool.from_url(given.pop("url"), timeout=timeout, **given))
    return Redis.from_pool(ConnectionPool.from_url(given.pop("url"), **given))


def _servers(alias: str) -> list[str]:
    """Return the addresses of the cache's LOCATION, as django-redis reads it."""
    location = caches.settings[alias]["LOCATION"]
    return location.split(",") if isinstance(location, str) else list(location)


class OwnPool:
    """Gives a connection factory its own pool: django-redis keeps one for each URL, whatever its timeouts."""

    def get_or_create_connection_pool(self: Any, params: dict[str, Any]) -> Any:
        return self.get_connection_pool(params)
