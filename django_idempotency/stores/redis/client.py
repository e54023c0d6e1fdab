"""How the Redis store reaches its server: timeouts on everything, scripts that survive a flush, one client a loop."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured

from ...concurrency.forking import new_lock
from ...concurrency.threads import in_thread
from ...errors import StoreRefused, StoreUnavailable
from . import cluster

#: Of a command: its name, a script, and how many keys that has.
Start = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Script:
    """How a command begins that runs a script on one key: by its hash, or by its text."""

    by_hash: Start
    #: The server remembers it then.
    by_text: Start


def script(name: str) -> Script:
    """Load a script of ours."""
    text = (Path(__file__).parent / "scripts" / f"{name}.lua").read_text()
    sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
    return Script(("EVALSHA", sha, 1), ("EVAL", text, 1))


@dataclass(slots=True)
class Call:
    """A script to run on one key. `wrote`: which answers mean that it wrote, and count once enough replicas have that."""

    script: Script
    name: str
    arguments: tuple[bytes | str, ...] = ()
    wrote: Callable[[Any], bool] | None = None


class NotReplicated(StoreUnavailable):
    """Too few replicas have a record, although the server has it."""


class RedisClient:
    """Runs calls in the cache `alias` of CACHES, over connections of its own: only ours have our timeouts."""

    def __init__(self, alias: str, *, timeout: float, min_replicas: int) -> None:
        self._alias = alias
        self._timeout = timeout
        self.min_replicas = min_replicas
        self._of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _Kept] = WeakKeyDictionary()
        self._lock = new_lock()

    def name(self, key: str) -> str:
        """Return a key under the cache's own KEY_PREFIX and VERSION."""
        return str(self._cache.make_key(key))

    def ask(self, call: Call) -> Any:
        try:
            return self._send(call, call.script.by_hash)
        except Exception as error:  # noqa: BLE001 - sorted there: what exceptions redis-py has is not asked before
            with self._translated():
                _expect_no_script(error)
                return self._send(call, call.script.by_text)

    async def aask(self, call: Call) -> Any:
        """See ask()."""
        client = await self._async()
        if client is None:
            return await in_thread(self.ask, call, thread_sensitive=False)
        try:
            return await self._asend(client, call, call.script.by_hash)
        except Exception as error:  # noqa: BLE001 - the same
            try:
                with translated():
                    _expect_no_script(error)
                    return await self._asend(client, call, call.script.by_text)
            except StoreRefused as refused:
                if (pool := _outdated(client, refused)) is not None:
                    await pool.disconnect(inuse_connections=False)
                raise

    def ask_all(self, calls: Sequence[Call]) -> tuple[list[Any], StoreUnavailable | None]:
        """Run many calls in one trip (one a node, in a cluster). Each is a step of its own.

        Return their answers, and why some have none: a node that is away takes nothing from the others' keys.
        """
        answers: list[Any] = [None] * len(calls)
        away: StoreUnavailable | None = None
        for places in self._by_node(calls):
            try:
                with self._translated():
                    pipeline = self._sync.pipeline(transaction=False)
                    for call in (calls[place] for place in places):
                        pipeline.execute_command(*call.script.by_text, call.name, *call.arguments)
                    for place, answer in zip(places, pipeline.execute(), strict=True):
                        answers[place] = answer
            except StoreUnavailable as error:
                away = error
        return answers, away

    def _by_node(self, calls: Sequence[Call]) -> list[list[int]]:
        """Return the places of calls that go to one server."""
        with self._translated():
            client = self._sync
        groups: dict[Any, list[int]] = {}
        for place, call in enumerate(calls):
            groups.setdefault(cluster.node_of(client, call.name), []).append(place)
        return list(groups.values())

    def about(self) -> dict[str, Any]:
        """Return INFO; in a cluster, of one node."""
        with self._translated():
            return dict(self._sync.info())

    def delete(self, name: str) -> None:
        with self._translated():
            self._sync.delete(name)

    # ---------------------------------------------------------------------------------------------------- one call

    def _send(self, call: Call, start: Start) -> Any:
        command = (*start, call.name, *call.arguments)
        if call.wrote is None or not self.min_replicas:
            return self._sync.execute_command(*command)
        pipeline = self._sync.pipeline(transaction=False)
        pipeline.execute_command(*command)
        pipeline.execute_command("WAIT", self.min_replicas, self._patience)
        return self._replicated(call.wrote, *pipeline.execute())

    async def _asend(self, client: Any, call: Call, start: Start) -> Any:
        command = (*start, call.name, *call.arguments)
        if call.wrote is None or not self.min_replicas:
            return await client.execute_command(*command)
        pipeline = client.pipeline(transaction=False)
        pipeline.execute_command(*command)
        pipeline.execute_command("WAIT", self.min_replicas, self._patience)
        return self._replicated(call.wrote, *await pipeline.execute())

    @property
    def _patience(self) -> int:
        """Milliseconds that WAIT waits: half of what an answer may take, since a server ends waits ten times a second."""
        return max(1, int(self._timeout * 500))

    def _replicated(self, wrote: Callable[[Any], bool], reply: Any, replicas: int) -> Any:
        if replicas < self.min_replicas and wrote(reply):
            raise NotReplicated(
                f"Only {replicas} of {self.min_replicas} replicas have what was written, so a failover may lose it. "
                "Send the request again."
            )
        return reply

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            with translated():
                yield
        except StoreRefused as refused:
            if (pool := _outdated(self._sync, refused)) is not None:
                pool.disconnect(inuse_connections=False)
            raise

    # ------------------------------------------------------------------------------------------------- connections

    @cached_property
    def _cache(self) -> Any:
        """Return the cache as one thread has it: for its keys and its settings only, which all threads may read."""
        cache: Any = caches[self._alias]
        if not hasattr(getattr(cache, "client", None), "connection_factory"):
            raise ImproperlyConfigured(
                f'CACHES["{self._alias}"] is {type(cache).__name__}. RedisStore needs django-redis there: type '
                '"BACKEND": "django_redis.cache.RedisCache".'
            )
        return cache

    @cached_property
    def _sync(self) -> Any:
        """Return a client as the cache has one, made by its own factory; but for the timeouts, and the pool."""
        from redis.backoff import NoBackoff
        from redis.connection import BlockingConnectionPool
        from redis.exceptions import ConnectionError as Disconnected
        from redis.retry import Retry

        theirs = self._cache.client
        # A closed connection is tried once more: by then the owner token tells what has happened. A timeout is not.
        retry = Retry(NoBackoff(), 1, supported_errors=(Disconnected,))
        options = {
            **theirs._options,  # noqa: SLF001
            "SOCKET_TIMEOUT": self._timeout,
            "SOCKET_CONNECT_TIMEOUT": self._timeout,
            "CONNECTION_POOL_KWARGS": {**theirs._options.get("CONNECTION_POOL_KWARGS", {}), "retry": retry},  # noqa: SLF001
        }
        if sentinels := options.get("SENTINELS"):  # all of them are asked in the time of one
            patience = self._timeout / len(sentinels)
            options["SENTINEL_KWARGS"] = {
                **(options.get("SENTINEL_KWARGS") or {}),
                "socket_timeout": patience,
                "socket_connect_timeout": patience,
                "retry": Retry(NoBackoff(), 0),
            }
        factory = type(theirs.connection_factory)(options)
        factory._pools = {}  # noqa: SLF001 - django-redis keeps one pool a URL, whatever its timeouts
        if isinstance(factory.pool_cls, type) and issubclass(factory.pool_cls, BlockingConnectionPool):
            factory.pool_cls_kwargs["timeout"] = self._timeout
        if cluster.wanted(factory):
            return cluster.connect(factory, theirs._server, min_replicas=self.min_replicas)  # noqa: SLF001
        return factory.connect(theirs._server[0])  # noqa: SLF001

    async def _async(self) -> Any:
        """Return this event loop's client, which is closed with it; `None` where a thread asks (Sentinel, a cluster)."""
        loop = asyncio.get_running_loop()
        kept = self._of_loop.get(loop)
        if kept is None:
            kept = _Kept(self._new_async())
            with self._lock:  # threads under WSGI have a loop each, and walk this beside one another
                for ended in [other for other in list(self._of_loop) if other.is_closed()]:
                    self._of_loop.pop(ended, None)  # its client leads back to it, so nothing else would let it go
                self._of_loop[loop] = kept
            await kept.begin()
        return kept.client

    def _new_async(self) -> Any:
        from redis.asyncio import BlockingConnectionPool, ConnectionPool, Redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff
        from redis.connection import BlockingConnectionPool as OfThreads
        from redis.exceptions import ConnectionError as Disconnected
        from redis.sentinel import SentinelConnectionPool

        theirs = self._cache.client
        factory = theirs.connection_factory
        if not isinstance(factory.pool_cls, type) or issubclass(factory.pool_cls, SentinelConnectionPool):
            return None
        if cluster.wanted(factory):
            return None
        given = factory.make_connection_params(theirs._server[0]) | factory.pool_cls_kwargs  # noqa: SLF001
        for of_sync in ("parser_class", "connection_class", "timeout"):
            given.pop(of_sync, None)
        given |= {
            "socket_timeout": self._timeout,
            "socket_connect_timeout": self._timeout,
            "retry": Retry(NoBackoff(), 1, supported_errors=(Disconnected,)),
        }
        if issubclass(factory.pool_cls, OfThreads):
            return Redis.from_pool(BlockingConnectionPool.from_url(given.pop("url"), timeout=self._timeout, **given))
        return Redis.from_pool(ConnectionPool.from_url(given.pop("url"), **given))


class _Kept:
    """A client that is closed when its event loop ends: an unfinished async generator is what a loop finishes last."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self._life = self._live()

    async def begin(self) -> None:
        await anext(self._life)

    async def _live(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            if self.client is not None:
                await self.client.aclose()


def _expect_no_script(error: Exception) -> None:
    """Return if the server has forgotten a script; raise anything else."""
    from redis.exceptions import NoScriptError

    if not isinstance(error, NoScriptError):
        raise error


def _outdated(client: Any, refused: StoreRefused) -> Any:
    """Return the client's pool, if the server has become a replica: its address may lead to the new primary by now.

    A cluster's client has no pool, and looks for the primary itself. Before Redis 7 the error of a script quotes that
    of its command.
    """
    from redis.exceptions import ReadOnlyError

    demoted = isinstance(refused.__cause__, ReadOnlyError) or "READONLY" in str(refused.__cause__)
    return getattr(client, "connection_pool", None) if demoted else None


@contextmanager
def translated() -> Iterator[None]:
    from redis.exceptions import ClusterError, RedisClusterException, RedisError, ResponseError

    try:
        yield
    except (RedisError, RedisClusterException, OSError) as error:
        answered = isinstance(error, ResponseError) and not isinstance(error, ClusterError)
        raise (StoreRefused if answered else StoreUnavailable) from error
