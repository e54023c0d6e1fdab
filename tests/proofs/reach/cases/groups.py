"""Stores in a cluster and behind Sentinel, for the cases of this folder."""

from __future__ import annotations

from typing import Any

from ....support.redis_groups import NAME, Group


def caches(group: Group) -> dict[str, Any]:
    """Return CACHES for a group: `others` are the masters of a cluster, or Sentinels."""
    cache: dict[str, Any] = {"BACKEND": "django_redis.cache.RedisCache"}
    if group.clustered:
        cache |= {
            "LOCATION": [server.url for server in group.others],
            "OPTIONS": {"REDIS_CLIENT_CLASS": "redis.cluster.RedisCluster"},
        }
    else:
        cache |= {
            "LOCATION": f"redis://{NAME}/0",
            "OPTIONS": {
                "CLIENT_CLASS": "django_redis.client.SentinelClient",
                "CONNECTION_FACTORY": "django_redis.pool.SentinelConnectionFactory",
                "SENTINELS": [("127.0.0.1", server.port) for server in group.others],
            },
        }
    return {"records": cache}
