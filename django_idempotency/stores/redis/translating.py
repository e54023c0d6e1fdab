"""Errors of the driver as errors of a store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import StoreRefused, StoreUnavailable


def outdated(client: Any, error: BaseException | None) -> Any:
    """Return the client's pool if the server has become a replica: its address may lead to the new primary by now.

    A cluster's client has no pool, and looks for the primary itself. Before Redis 7 the error of a script quotes that
    of its command.
    """
    from redis.exceptions import ReadOnlyError

    demoted = isinstance(error, ReadOnlyError) or "READONLY" in str(error)
    return getattr(client, "connection_pool", None) if demoted else None


class Translated:
    """A context that raises `StoreRefused` or `StoreUnavailable` for an error of the driver. It holds no state."""

    def __init__(self, refused: Callable[[BaseException], None] = lambda _: None) -> None:
        #: Called with the driver's error before `StoreRefused` is raised.
        self._refused = refused

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        from redis.exceptions import ClusterError, RedisClusterException, RedisError, ResponseError

        if isinstance(error, ResponseError) and not isinstance(error, ClusterError):
            self._refused(error)
            raise StoreRefused from error
        if isinstance(error, (RedisError, RedisClusterException, OSError)):
            raise StoreUnavailable from error


#: For a client whose connections are not in RedisClient's own pool.
TRANSLATED = Translated()
