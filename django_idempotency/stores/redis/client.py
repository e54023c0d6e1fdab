"""Runs the Redis store's scripts, which survive a flush: one client per process."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from django.core.cache import caches

from ...core.records import prints
from ...errors import StoreRefused, StoreUnavailable
from .connecting import is_url, new_client, node_of
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


class Translated:
    """A context that raises `StoreRefused` or `StoreUnavailable` for an error of the driver. It
    holds no state.
    """

    def __init__(self, refused: Callable[[BaseException], None]) -> None:
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


class RedisClient:
    """Runs calls at a place (see connecting.py), over its own connections: only these have our
    timeouts.
    """

    def __init__(self, place: str, *, timeout: float, min_replicas: int) -> None:
        self._place = place
        self._timeout = timeout
        self.min_replicas = min_replicas
        self._translated = Translated(self._leave_outdated)

    def name(self, key: str) -> str:
        """Return a key as it is; in a cache, under its own KEY_PREFIX and VERSION."""
        if is_url(self._place):
            return key
        return str(self._cache.make_key(key))

    def ask(self, call: Call) -> Any:
        with self._translated:
            if call.wrote is None or not self.min_replicas:
                return _evaluated(self._server, call)
            reply, replicas = self._piped(call).execute()
        if replicas < self.min_replicas and call.wrote(reply):
            raise NotReplicated(
                f"Only {replicas} of {self.min_replicas} replicas have what was written, "
                "so a failover may lose it. "
                "Send the request again."
            )
        return reply

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
                    pipeline = self._server.pipeline(transaction=False)
                    for index in indexes:
                        call = calls[index]
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
        groups = defaultdict[Any, list[int]](list)
        with self._translated:
            for index, call in enumerate(calls):
                groups[node_of(self._server, call.name)].append(index)
        return list(groups.values())

    def about(self) -> dict[str, Any]:
        """Return INFO; in a cluster, of one node."""
        with self._translated:
            return dict(self._server.info())

    def named(self, prefix: str, *, digits: int, size: int) -> Iterator[list[str]]:
        """Yield the names that are a prefix and as many digits, in batches: in a cluster, of all
        nodes.
        """
        batch: list[str] = []
        pattern = _SPECIAL.sub(r"\\\g<0>", prefix) + "?" * digits
        with self._translated:
            for name in self._server.scan_iter(match=pattern, count=SCANNED):
                batch.append(name.decode())
                if len(batch) >= size:
                    yield batch
                    batch = []
        if batch:
            yield batch

    def delete(self, name: str) -> None:
        with self._translated:
            self._server.delete(name)

    # ------------------------------------------------------------------------------------- one call

    def _piped(self, call: Call) -> Any:
        """Return a pipeline that writes, then waits for the replicas.

        The script is sent as text: by its hash, the pipeline would first ask whether the server has
        it, one more trip.
        """
        pipeline = self._server.pipeline(transaction=False)
        pipeline.eval(SCRIPTS[call.script].text, 1, call.name, *call.arguments)
        # In milliseconds; half of the timeout, because a server ends waits only ten times a second.
        pipeline.wait(self.min_replicas, max(1, int(self._timeout * 500)))
        return pipeline

    def _leave_outdated(self, error: BaseException) -> None:
        """Close the idle connections if the server has become a replica: its address may lead to
        the new primary by now.

        A cluster's client has no pool, and looks for the primary itself. Before Redis 7 the error
        of a script quotes that of its command.
        """
        from redis.exceptions import ReadOnlyError

        demoted = isinstance(error, ReadOnlyError) or "READONLY" in str(error)
        pool = getattr(self._server, "connection_pool", None)
        if demoted and pool is not None:
            pool.disconnect(inuse_connections=False)

    # ---------------------------------------------------------------------------------- connections

    @cached_property
    def _cache(self) -> Any:
        """Return one thread's cache object.

        Only its keys are used, which all threads may read.
        """
        return caches[self._place]

    @cached_property
    def _server(self) -> Any:
        return new_client(self._place, timeout=self._timeout, min_replicas=self.min_replicas)


def _evaluated(client: Any, call: Call) -> Any:
    """Run a script by its hash. As text, if the server does not know that yet: then it does."""
    from redis.exceptions import NoScriptError

    script = SCRIPTS[call.script]
    try:
        return client.evalsha(script.sha, 1, call.name, *call.arguments)
    except NoScriptError:
        return client.eval(script.text, 1, call.name, *call.arguments)
