"""The Redis store's verbs, each compared with a PING on the same client; and bytes per record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn
from unittest.mock import patch
from uuid import uuid4

from django.core.exceptions import ImproperlyConfigured

from django_idempotency.core.records import Ticket
from django_idempotency.errors import StoreUnavailable
from django_idempotency.stores.layered import LayeredStore
from django_idempotency.stores.memory import MemoryStore
from django_idempotency.stores.redis import RedisStore
from django_idempotency.stores.redis.client import Call

from . import acts
from .measuring import Case, Effort, interleaved
from .store import BODY, ticket
from .table import Row, Section

#: Seconds. A busy machine is not a frozen server.
TIMEOUT = 5


@dataclass(frozen=True, slots=True)
class Opened:
    """A store whose server responds, or `None`; and the server's name, or why there is none."""

    store: RedisStore | None
    about: str
    client: Any = None


@contextmanager
def opened() -> Iterator[Opened]:
    """Yield a store with its own prefix, and delete its keys afterwards."""
    try:
        import redis

        store = RedisStore(cache="redis", prefix=f"bench-{uuid4().hex[:8]}", timeout=TIMEOUT)
        store.claim(ticket())
        client = store._client._server  # noqa: SLF001 - the base must be measured on the same client
        version = client.info("server")["redis_version"]
    except (ImportError, ImproperlyConfigured, StoreUnavailable) as error:
        yield Opened(None, f"NOT REACHED: {error.__cause__ or error}")
        return
    try:
        yield Opened(store, f"{version}, redis-py {redis.__version__}", client)
    finally:
        for prefix in (store.prefix, "bench-served"):  # the second one is that of the served views
            for name in client.scan_iter(f"*{prefix}:*", count=1000):
                client.delete(name)


def sections(redis: Opened, effort: Effort) -> Iterator[Section]:
    assert redis.store is not None
    yield verbs(redis, redis.store, effort)
    yield size(redis, redis.store)


def claim_of(store: RedisStore, ticket: Ticket) -> Call:
    """Return the call that a claim makes."""
    asked: list[Call] = []

    def ask(call: Call) -> NoReturn:
        asked.append(call)
        raise StoreUnavailable

    with patch.object(store._client, "ask", ask), suppress(StoreUnavailable):  # noqa: SLF001
        store.claim(ticket)
    return asked[0]


def verbs(redis: Opened, store: RedisStore, effort: Effort) -> Section:
    name = store._client.name(f"{store.prefix}:1-kB")  # noqa: SLF001
    redis.client.set(name, BODY, ex=3600)
    ping = Case("PING", lambda: redis.client.ping)
    known = acts.finished(store)
    # The part of a replay without our own work.
    script = claim_of(store, known)
    layered = LayeredStore(front=store, authority=MemoryStore())
    cases: list[tuple[Case, float | None, int]] = [
        (Case("GET of 1 kB", lambda: partial(redis.client.get, name)), None, 1),
        (acts.claim(store), 1.7, 1),
        (acts.replay(store), 1.6, 1),
        (
            Case(
                "its script alone, by the same client",
                lambda: partial(store._client.ask, script),  # noqa: SLF001
            ),
            None,
            1,
        ),
        (acts.settle(store), None, 1),
        (acts.replay(layered, "replay, as a front of a layered store"), None, 1),
    ]
    with trips() as sent:
        counts = [acts.count(case, sent) for case, *_ in cases]
    timings = interleaved([ping, *(case for case, *_ in cases)], effort)
    rows = [
        Row(
            name=case.name,
            values=timings.ratios(case.name, ping.name),
            bar=bar,
            statements=count,
            most_statements=most,
        )
        for (case, bar, most), count in zip(cases, counts, strict=True)
    ]
    return Section(
        title=f"Verbs; a PING on the same client = 1 ({min(timings[ping.name]) * 1e6:.0f} µs)",
        rows=rows,
    )


@contextmanager
def trips() -> Iterator[list[str]]:
    """Collect what is sent, one entry per packet."""
    from redis.connection import Connection

    sent: list[str] = []
    send: Any = Connection.send_packed_command

    def noted(self: Any, command: Any, check_health: bool = True) -> None:
        sent.append(str(command))
        send(self, command, check_health)

    with patch.object(Connection, "send_packed_command", noted):
        yield sent


def size(redis: Opened, store: RedisStore) -> Section:
    """Measure records as Redis counts them: it rounds each value up, and keeps its name and its
    expiry beside it.
    """
    running, done, plain = acts.claimed(store), acts.finished(store), acts.claimed(store)
    names = [store._name(ticket.id) for ticket in (running, done, plain)]  # noqa: SLF001
    redis.client.set(names[2], BODY, ex=3600)
    in_progress, finished, body = (redis.client.memory_usage(name) for name in names)
    rows = [
        Row(name="in progress", values=[in_progress], unit="B"),
        Row(
            name="finished, beyond a plain value of its body of 1 kB",
            values=[finished - body],
            unit="B",
            bar=450,
        ),
        Row(name="that plain value, beyond its body", values=[body - len(BODY)], unit="B"),
    ]
    return Section(title="Bytes a record (MEMORY USAGE)", rows=rows)
