"""Runs the Redis store's scripts, which survive a flush: one client per process, and one per event
loop.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from ...core.concurrency import in_thread, new_lock
from ...core.driving import adrive, drive
from ...core.records import prints
from ...errors import StoreRefused, StoreUnavailable
from .connecting import cache_of, new_async_client, new_client, node_of
from .layout import SCRIPTS

#: Keys of the server that one step of a scan looks at.
SCANNED = 1000
#: What a pattern of Redis means by more than itself.
_SPECIAL = re.compile(r"[*?\[\]^\\-]")


@prints("name")
class Call(NamedTuple):
    """A script to run on one key. `wrote`: does a reply mean a write? It counts once enough
    replicas have it.
    """

    script: str
    name: str
    arguments: tuple[bytes | str, ...] = ()
    wrote: Callable[[Any], bool] | None = None


class NotReplicated(StoreUnavailable):
    """Too few replicas have a record, although the server has it."""

    delivery = "later"


def outdated(client: Any, error: BaseException | None) -> Any:
    """Return the client's pool if the server has become a replica: its address may lead to the new
    primary by now.

    A cluster's client has no pool, and looks for the primary itself. Before Redis 7 the error of a
    script quotes that of its command.
    """
    from redis.exceptions import ReadOnlyError

    demoted = isinstance(error, ReadOnlyError) or "READONLY" in str(error)
    return getattr(client, "connection_pool", None) if demoted else None


class Translated:
    """A context that raises `StoreRefused` or `StoreUnavailable` for an error of the driver. It
    holds no state.
    """

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


class RedisClient:
    """Runs calls in the cache `alias` of CACHES, over its own connections: only these have our
    timeouts.
    """

    def __init__(self, alias: str, *, timeout: float, min_replicas: int) -> None:
        self._alias = alias
        self._timeout = timeout
        self.min_replicas = min_replicas
        self._of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _Kept] = WeakKeyDictionary()
        self._lock = new_lock()
        self._translated = Translated(self._leave_outdated)

    def name(self, key: str) -> str:
        """Return a key under the cache's own KEY_PREFIX and VERSION."""
        return str(self._cache.make_key(key))

    def ask(self, call: Call) -> Any:
        with self._translated:
            if call.wrote is None or not self.min_replicas:
                return drive(_evaluated(call), partial(_asked, self._sync))
            return self._replicated(call.wrote, *self._piped(self._sync, call).execute())

    async def aask(self, call: Call) -> Any:
        """See ask()."""
        client = (await self._async()).client
        if client is None:
            return await in_thread(self.ask, call, thread_sensitive=False)
        try:
            with TRANSLATED:
                if call.wrote is None or not self.min_replicas:
                    return await adrive(_evaluated(call), partial(_asked, client))
                return self._replicated(call.wrote, *await self._piped(client, call).execute())
        except StoreRefused as refused:
            if (pool := outdated(client, refused.__cause__)) is not None:
                await pool.disconnect(inuse_connections=False)
            raise

    def ask_all(self, calls: Sequence[Call]) -> tuple[list[Any], StoreUnavailable | None]:
        """Run many calls in one trip (in a cluster, one per node).

        Each call is an atomic step of its own.

        Return their replies, and why some have none: a node that is down does not affect the keys
        of the others.
        """
        answers: list[Any] = [None] * len(calls)
        away: StoreUnavailable | None = None
        for indexes in self._by_node(calls):
            try:
                with self._translated:
                    pipeline = self._sync.pipeline(transaction=False)
                    for call in (calls[index] for index in indexes):
                        # Sent as text; a cluster's pipeline has no eval().
                        pipeline.execute_command(
                            "EVAL", SCRIPTS[call.script].text, 1, call.name, *call.arguments
                        )
                    for index, answer in zip(indexes, pipeline.execute(), strict=True):
                        answers[index] = answer
            except StoreUnavailable as error:
                away = error
        return answers, away

    def _by_node(self, calls: Sequence[Call]) -> list[list[int]]:
        """Return the indexes of the calls, grouped by the server that they go to."""
        with self._translated:
            client = self._sync
        groups: dict[Any, list[int]] = {}
        for index, call in enumerate(calls):
            groups.setdefault(node_of(client, call.name), []).append(index)
        return list(groups.values())

    def about(self) -> dict[str, Any]:
        """Return INFO; in a cluster, of one node."""
        with self._translated:
            return dict(self._sync.info())

    def named(self, prefix: str, *, digits: int, size: int) -> Iterator[list[str]]:
        """Yield the names that are a prefix and as many digits, in batches: in a cluster, of all
        nodes.
        """
        batch: list[str] = []
        pattern = _SPECIAL.sub(r"\\\g<0>", prefix) + "?" * digits
        with self._translated:
            for name in self._sync.scan_iter(match=pattern, count=SCANNED):
                batch.append(name.decode() if isinstance(name, bytes) else name)
                if len(batch) >= size:
                    yield batch
                    batch = []
        if batch:
            yield batch

    def delete(self, name: str) -> None:
        with self._translated:
            self._sync.delete(name)

    # ------------------------------------------------------------------------------------- one call

    def _piped(self, client: Any, call: Call) -> Any:
        """Return a pipeline that writes, then waits for the replicas.

        The script is sent as text: by its hash, the pipeline would first ask whether the server has
        it, one more trip.
        """
        pipeline = client.pipeline(transaction=False)
        pipeline.eval(SCRIPTS[call.script].text, 1, call.name, *call.arguments)
        pipeline.wait(self.min_replicas, self._patience)
        return pipeline

    @property
    def _patience(self) -> int:
        """Milliseconds that WAIT waits: half of the timeout, because a server ends waits only ten
        times a second.
        """
        return max(1, int(self._timeout * 500))

    def _replicated(self, wrote: Callable[[Any], bool], reply: Any, replicas: int) -> Any:
        if replicas < self.min_replicas and wrote(reply):
            raise NotReplicated(
                f"Only {replicas} of {self.min_replicas} replicas have what was written, "
                "so a failover may lose it. "
                "Send the request again."
            )
        return reply

    def _leave_outdated(self, error: BaseException) -> None:
        if (pool := outdated(self._sync, error)) is not None:
            pool.disconnect(inuse_connections=False)

    # ---------------------------------------------------------------------------------- connections

    @cached_property
    def _cache(self) -> Any:
        """Return one thread's cache object.

        Only its keys and settings are used, which all threads may read.
        """
        return cache_of(self._alias)

    @cached_property
    def _sync(self) -> Any:
        return new_client(
            self._cache, self._alias, timeout=self._timeout, min_replicas=self.min_replicas
        )

    async def _async(self) -> _Kept:
        """Return this loop's client, closed with it; its `client` is `None` if a thread asks
        (Sentinel, a cluster).
        """
        loop = asyncio.get_running_loop()
        kept = self._of_loop.get(loop)
        if kept is None:
            kept = _Kept(new_async_client(self._cache, self._alias, timeout=self._timeout))
            # Under WSGI each thread has a loop, and several may iterate here at once.
            with self._lock:
                for ended in [other for other in list(self._of_loop) if other.is_closed()]:
                    # Its client refers to the loop, so it would never be freed.
                    self._of_loop.pop(ended, None)
                self._of_loop[loop] = kept
            await kept.begin()
        return kept


class _Kept:
    """A client that is closed when its event loop ends: the last thing that a loop finishes is its
    async generators.
    """

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


def _evaluated(call: Call) -> Generator[tuple[Any, ...], Any, Any]:
    """Run a script by its hash. As text, if the server does not know that yet: then it does."""
    from redis.exceptions import NoScriptError

    script, given = SCRIPTS[call.script], (1, call.name, *call.arguments)
    with suppress(NoScriptError):
        return (yield "evalsha", script.sha, *given)
    return (yield "eval", script.text, *given)


def _asked(client: Any, command: tuple[Any, ...]) -> Any:
    """Call a method of a client. That of an async one returns an awaitable."""
    return getattr(client, command[0])(*command[1:])
