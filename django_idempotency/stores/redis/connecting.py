"""Makes clients like those of a django-redis cache, with timeouts on everything and connections of
their own.

Of a Redis Cluster, too, if the cache is set up for one: each verb uses one key, and so one node.
"""

from __future__ import annotations

from typing import Any

from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured


def cache_of(alias: str) -> Any:
    """Return this thread's cache object, which must be django-redis's."""
    cache: Any = caches[alias]
    if not hasattr(getattr(cache, "client", None), "connection_factory"):
        raise ImproperlyConfigured(
            f'CACHES["{alias}"] is {type(cache).__name__}. RedisStore needs django-redis '
            "there: type "
            '"BACKEND": "django_redis.cache.RedisCache".'
        )
    return cache


def new_client(cache: Any, alias: str, *, timeout: float, min_replicas: int) -> Any:
    """Return a client like the cache's, made by the cache's own factory; but with our timeouts and
    our own pool.
    """
    from redis.backoff import NoBackoff
    from redis.connection import BlockingConnectionPool
    from redis.exceptions import ConnectionError as Disconnected
    from redis.retry import Retry

    # A closed connection is retried once: the owner token then shows what the first try did. A
    # timeout is not.
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
    if _wants_cluster(factory):
        return _connect_cluster(factory, _servers(alias), min_replicas=min_replicas)
    return factory.connect(_servers(alias)[0])


def _servers(alias: str) -> list[str]:
    """Return the addresses of the cache's LOCATION, as django-redis reads it."""
    location = caches.settings[alias]["LOCATION"]
    return location.split(",") if isinstance(location, str) else list(location)


class OwnPool:
    """Gives a connection factory its own pool: django-redis keeps one for each URL, whatever its
    timeouts.
    """

    def get_or_create_connection_pool(self: Any, params: dict[str, Any]) -> Any:
        return self.get_connection_pool(params)


def _wants_cluster(factory: Any) -> bool:
    """Is a connection factory of django-redis set up to make clients of a cluster?"""
    from redis.cluster import RedisCluster

    return isinstance(factory.redis_client_cls, type) and issubclass(
        factory.redis_client_cls, RedisCluster
    )


def _connect_cluster(factory: Any, servers: list[str], *, min_replicas: int) -> Any:
    """Return a client of the cluster whose nodes are `servers`.

    The others are asked if the first is down.
    """
    from redis.cluster import ClusterNode
    from redis.connection import parse_url

    if min_replicas:
        raise ImproperlyConfigured(
            'RedisStore: "min_replicas" cannot be had in a cluster, whose client does not '
            "say which connection it wrote "
            "on. Leave it out."
        )
    given = {
        **factory.make_connection_params(servers[0]),
        **factory.pool_cls_kwargs,
        **factory.redis_client_cls_kwargs,
    }
    for of_one_server in ("url", "parser_class"):
        given.pop(of_one_server, None)
    others = [parse_url(server) for server in servers[1:]]  # type: ignore[no-untyped-call]
    nodes = [ClusterNode(other["host"], other.get("port", 6379)) for other in others]  # type: ignore[no-untyped-call]
    return factory.redis_client_cls.from_url(servers[0], startup_nodes=nodes, **given)


def node_of(client: Any, name: str) -> Any:
    """Return the cluster node that has a key, as far as the client knows; `None` if there is one
    server.
    """
    from redis.cluster import RedisCluster
    from redis.exceptions import RedisClusterException

    if not isinstance(client, RedisCluster):
        return None
    try:
        return client.get_node_from_key(name)  # type: ignore[no-untyped-call]
    except RedisClusterException:  # no node has it; the call will raise this
        return None
