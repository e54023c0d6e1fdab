"""Clients of a Redis Cluster, if a django-redis cache is set up for one. Each verb uses one key, and so one node."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ImproperlyConfigured


def wanted(factory: Any) -> bool:
    """Is a connection factory of django-redis set up to make clients of a cluster?"""
    from redis.cluster import RedisCluster

    return isinstance(factory.redis_client_cls, type) and issubclass(factory.redis_client_cls, RedisCluster)


def is_cluster(client: Any) -> bool:
    """Is this a client of a cluster?"""
    from redis.cluster import RedisCluster

    return isinstance(client, RedisCluster)


def connect(factory: Any, servers: list[str], *, min_replicas: int) -> Any:
    """Return a client of the cluster whose nodes are `servers`. The others are asked if the first is down."""
    from redis.cluster import ClusterNode
    from redis.connection import parse_url

    if min_replicas:
        raise ImproperlyConfigured(
            'RedisStore: "min_replicas" cannot be had in a cluster, whose client does not say which connection it wrote '
            "on. Leave it out."
        )
    given = {**factory.make_connection_params(servers[0]), **factory.pool_cls_kwargs, **factory.redis_client_cls_kwargs}
    for of_one_server in ("url", "parser_class"):
        given.pop(of_one_server, None)
    others = [parse_url(server) for server in servers[1:]]  # type: ignore[no-untyped-call]
    nodes = [ClusterNode(other["host"], other.get("port", 6379)) for other in others]  # type: ignore[no-untyped-call]
    return factory.redis_client_cls.from_url(servers[0], startup_nodes=nodes, **given)


def node_of(client: Any, name: str) -> Any:
    """Return the cluster node that has a key, as far as the client knows; `None` if there is one server."""
    from redis.exceptions import RedisClusterException

    if not is_cluster(client):
        return None
    try:
        return client.get_node_from_key(name)
    except RedisClusterException:  # no node has it; the call will raise this
        return None
