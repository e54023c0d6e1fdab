"""Makes the store's own clients, which are redis-py's, with timeouts on everything.

A place is a URL, or an alias of CACHES: of Django's own cache, django-redis's or django-valkey's.
Only django-redis's may be a Redis Cluster or watched by Sentinels: each verb uses one key, and so
one node.
"""

from __future__ import annotations

import re
from typing import Any

from django.core.cache import caches
from django.core.cache.backends.redis import RedisCache, RedisCacheClient
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string


def is_url(place: str) -> bool:
    return "://" in place


def settings_of(place: str) -> dict[str, Any]:
    """Return what CACHES says of a place: of a URL, as if it were a cache's."""
    if is_url(place):
        return {"LOCATION": [place]}
    given: dict[str, Any] = caches.settings.get(place, {})
    return given


def options_of(place: str) -> dict[str, Any]:
    return dict(settings_of(place).get("OPTIONS") or {})


def new_client(place: str, *, timeout: float, min_replicas: int) -> Any:
    from redis.cluster import RedisCluster

    pool = pool_of(place, timeout=timeout)
    kind = import_string(options_of(place).get("REDIS_CLIENT_CLASS", "redis.Redis"))
    if not issubclass(kind, RedisCluster):
        return kind(connection_pool=pool)
    if min_replicas:
        raise ImproperlyConfigured(
            'RedisStore: "min_replicas" cannot be had in a cluster, whose client does not '
            "say which connection it wrote on. Leave it out."
        )
    return _connect_cluster(kind, place, timeout=timeout)


def pool_of(place: str, *, timeout: float) -> Any:
    """Return a pool of our own to the server that a cache writes to. It opens no connection."""
    pool = _pool(place, timeout)
    pool.connection_kwargs.update(_ours(timeout))
    pool.connection_kwargs.pop("retry_on_timeout", None)
    if hasattr(pool, "timeout"):  # that of waiting for a free connection
        pool.timeout = timeout
    return pool


def _ours(timeout: float) -> dict[str, Any]:
    """Return what each of our connections has, whatever those of the project have.

    A closed connection is retried once: the owner token then shows what the first try did. A
    timeout is not.
    """
    from redis.backoff import NoBackoff
    from redis.exceptions import ConnectionError as Disconnected
    from redis.retry import Retry

    return {
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "retry": Retry(NoBackoff(), 1, supported_errors=(Disconnected,)),
        "retry_on_error": [],
        "decode_responses": False,
    }


def _pool(place: str, timeout: float) -> Any:
    options = options_of(place)
    if is_url(place) or isinstance(caches[place], RedisCache):
        return _pool_as_django(_servers(place, "[;,]"), **options)
    cache: Any = caches[place]
    factory: Any = getattr(getattr(cache, "client", None), "connection_factory", None)
    if hasattr(factory, "redis_client_cls"):
        if sentinels := options.get("SENTINELS"):  # asking all of them takes the time of one
            asked = options.get("SENTINEL_KWARGS") or {}
            options["SENTINEL_KWARGS"] = {**asked, **_ours(timeout / len(sentinels))}
        # The cache's own factory keeps one pool for each URL, whatever its timeouts.
        own = type(factory)(options)
        return own.get_connection_pool(own.make_connection_params(_servers(place)[0]))
    if f"{type(factory).__module__}.{type(factory).__name__}" == VALKEYS:
        url = re.sub("^valkey", "redis", _servers(place)[0])
        kind = re.sub(
            r"^valkey\.", "redis.", options.get("CONNECTION_POOL_CLASS", "redis.ConnectionPool")
        )
        return _pool_as_django([url], pool_class=kind, **_parameters(factory, url))
    raise ImproperlyConfigured(
        f'CACHES["{place}"] is {type(cache).__name__}, set up as RedisStore cannot follow it. '
        'Give the store a "url"; for Sentinel or a cluster take django_redis.cache.RedisCache.'
    )


#: The one factory of django-valkey whose connections redis-py can make, too.
VALKEYS = "django_valkey.pool.ConnectionFactory"


def _pool_as_django(servers: list[str], **options: Any) -> Any:
    """Return a pool to the first of some servers, made as for the writes of Django's own cache."""
    return RedisCacheClient(servers, **options).get_client(write=True).connection_pool


def _servers(place: str, between: str = ",") -> list[str]:
    """Return the addresses of the cache's LOCATION, as the cache reads it."""
    location = settings_of(place).get("LOCATION", "")
    if isinstance(location, str):
        return re.split(between, location)
    return list(location)


def _parameters(factory: Any, url: str) -> dict[str, Any]:
    """Return what a connection factory gives to each connection, but for its server and parser."""
    given = {**factory.make_connection_params(url), **factory.pool_cls_kwargs}
    for of_one_server in ("url", "parser_class"):
        given.pop(of_one_server, None)
    return given


def _connect_cluster(kind: Any, place: str, *, timeout: float) -> Any:
    """Return a client of the cluster of which a django-redis cache names some nodes.

    The others are asked if the first is down.
    """
    from redis.cluster import ClusterNode
    from redis.connection import parse_url

    cache: Any = caches[place]
    factory = cache.client.connection_factory
    first, *servers = _servers(place)
    given = {**_parameters(factory, first), **factory.redis_client_cls_kwargs, **_ours(timeout)}
    nodes = [
        ClusterNode(other["host"], other.get("port", 6379))  # type: ignore[no-untyped-call]
        for other in map(parse_url, servers)
    ]
    return kind.from_url(first, startup_nodes=nodes, **given)


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
