"""A front that is flushed, frozen, killed and restarted under a layered store: slower, never twice, never an error."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_django import Settings

from django_idempotency.core.rules import Execute, Replay
from django_idempotency.stores.layered import LayeredStore
from django_idempotency.stores.orm import ORMStore
from django_idempotency.stores.redis import RedisStore
from django_idempotency.testing.recording import RecordingStore

from ..services import needs_redis
from ..store_servers import RedisServer, running
from .acting import Call, atomic_ticket, effects

pytestmark = [
    needs_redis,
    pytest.mark.faults,
    pytest.mark.django_db(transaction=True),
]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with running(RedisServer(tmp_path)) as server:
        yield server


@pytest.fixture
def authority() -> RecordingStore:
    return RecordingStore(ORMStore())


@pytest.fixture
def store(server: RedisServer, authority: RecordingStore, settings: Settings) -> Iterator[LayeredStore]:
    settings.CACHES = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": server.url}}
    front = RedisStore()
    yield LayeredStore(front=front, authority=authority)
    front.close()


def call(store: LayeredStore, key: str = "key-1") -> Call:
    return Call(store=store, ticket=atomic_ticket(key=key, lease=1))


@pytest.mark.parametrize("trouble", ["flush", "freeze", "kill", "restart"])
class TestTrouble:
    def test_before(self, store: LayeredStore, server: RedisServer, trouble: str) -> None:
        """The work runs once, and its replay comes from the authority."""
        getattr(server, trouble)()
        assert isinstance(call(store).run(), Execute)
        assert isinstance(call(store).run(), Replay)
        assert effects() == 1

    def test_while_it_runs(self, store: LayeredStore, server: RedisServer, trouble: str) -> None:
        first = call(store)
        first.open()
        first.work()
        getattr(server, trouble)()
        first.settle()
        assert isinstance(call(store).run(), Replay)
        assert effects() == 1

    def test_after(self, store: LayeredStore, server: RedisServer, trouble: str) -> None:
        call(store).run()
        getattr(server, trouble)()
        assert isinstance(call(store).run(), Replay)
        assert effects() == 1


def test_a_frozen_front_costs_a_request_a_second_at_most(store: LayeredStore, server: RedisServer) -> None:
    """One timeout, whatever it still had to ask; and the next request has learnt of it."""
    call(store).run()
    server.freeze()
    spent = []
    for key in ("key-1", "key-2", "key-3"):
        began = time.perf_counter()
        call(store, key).run()
        spent.append(time.perf_counter() - began)
    assert spent[0] < 1.5  # half a second of it is the timeout, the rest is this machine's
    assert max(spent[1:]) < 0.4


def test_it_is_used_again(store: LayeredStore, server: RedisServer, authority: RecordingStore) -> None:
    """When it is back, and has been let alone for long enough, it answers again."""
    call(store).run()
    server.freeze()
    assert isinstance(call(store).run(), Replay)
    server.thaw()
    store.front._again = 0.0  # five seconds later
    authority.verbs.clear()
    assert isinstance(call(store).run(), Replay)
    assert authority.verbs == []
