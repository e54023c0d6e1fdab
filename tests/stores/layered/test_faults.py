"""A layered store whose front is flushed, frozen, killed or restarted: slower, but nothing runs
twice or fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from django_idempotency.core.rules import Execute, Replay
from django_idempotency.stores.layered import LayeredStore
from django_idempotency.stores.orm import ORMStore
from django_idempotency.stores.redis import RedisStore
from django_idempotency.testing.recording import RecordingStore

from ...support.services import needs_redis
from ...support.store_servers import RedisServer, running
from ..helpers import Call, atomic_ticket, effects

pytestmark = [
    needs_redis,
    pytest.mark.faults,
    pytest.mark.either_server,
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
def store(
    server: RedisServer, authority: RecordingStore, settings: Settings
) -> Iterator[LayeredStore]:
    settings.CACHES = {
        "default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": server.url}
    }
    front = RedisStore(timeout=1)  # a busy machine is not an outage
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


def test_a_frozen_front_costs_one_timeout(
    store: LayeredStore, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frozen front costs one timeout, whatever a request still had to ask; later requests skip
    it.
    """
    call(store).run()
    server.freeze()
    front: Any = store.front
    client = front._front._client
    sent, ask = [], client.ask

    def counted(*call: Any, **how: Any) -> Any:
        sent.append(call)
        return ask(*call, **how)

    monkeypatch.setattr(client, "ask", counted)
    for key in ("key-1", "key-2", "key-3"):
        assert isinstance(call(store, key).run(), (Execute, Replay))
    assert len(sent) == 1


def test_it_is_used_again(
    store: LayeredStore, server: RedisServer, authority: RecordingStore
) -> None:
    """When the front is back, and the pause is over, it is used again."""
    call(store).run()
    server.freeze()
    assert isinstance(call(store).run(), Replay)
    server.thaw()
    store.front._again = 0.0  # five seconds later
    authority.verbs.clear()
    assert isinstance(call(store).run(), Replay)
    assert authority.verbs == []
