"""Repeats are counted in memory and written in batches: never in a request, and never more than
there were.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from datetime import datetime, timezone
from uuid import UUID

import pytest

from django_idempotency.core import rules
from django_idempotency.core.records import Counted, Record
from django_idempotency.errors import StoreUnavailable
from django_idempotency.instrumentation import repeats as counting
from django_idempotency.instrumentation.repeats import RepeatCounter
from django_idempotency.stores.memory import MemoryStore
from django_idempotency.testing.tickets import NOW, make_ticket


class Store(MemoryStore):
    """Keeps the batches that it takes; does not respond while it is `away`."""

    counts_repeats = True
    away = False

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[dict[UUID, tuple[int, int]]] = []

    def add_repeats(self, batch: Sequence[Counted]) -> None:
        if self.away:
            raise StoreUnavailable
        self.batches.append({each.record_id: each.repeats[:2] for each in batch})


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> RepeatCounter:
    """A counter without its thread: each test calls `flush()`."""
    monkeypatch.setattr(RepeatCounter, "_start", lambda self: None)
    return RepeatCounter()


def record(key: str = "key-1") -> Record:
    return rules.born(make_ticket(key=key), NOW)


def test_one_batch(counter: RepeatCounter) -> None:
    """What came since the last batch is one line for each key; an empty batch is none."""
    store, first, second = Store(), record(), record("key-2")
    for _ in range(3):
        counter.add(store, first, replayed=True)
    counter.add(store, first, replayed=False)
    counter.add(store, second, replayed=False)
    counter.flush()
    counter.flush()
    counter.add(store, first, replayed=True)
    counter.flush()
    assert store.batches == [{first.id: (3, 1), second.id: (0, 1)}, {first.id: (1, 0)}]


def test_a_batch_that_fails_is_not_tried_again(counter: RepeatCounter) -> None:
    """It may have been written although its store did not respond: the counts are lower bounds."""
    away, store = Store(), Store()
    away.away = True
    counter.add(away, record(), replayed=True)
    counter.add(store, record(), replayed=True)
    counter.flush()
    away.away = False
    counter.flush()
    assert (away.batches, len(store.batches)) == ([], 1)


def test_memory_is_bounded(counter: RepeatCounter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond `MOST` keys only those that wait already are counted."""
    monkeypatch.setattr(counting, "MOST", 2)
    store = Store()
    for key in ("a", "b", "c", "a"):
        counter.add(store, record(key), replayed=True)
    counter.flush()
    assert store.batches == [{record("a").id: (2, 0), record("b").id: (1, 0)}]


def test_a_store_that_cannot(counter: RepeatCounter) -> None:
    counter.add(MemoryStore(), record(), replayed=True)
    assert not counter._waiting


def test_many_threads(counter: RepeatCounter) -> None:
    """No repeat is lost or counted twice between threads."""
    store, one = Store(), record()

    def count() -> None:
        for _ in range(500):
            counter.add(store, one, replayed=True)
            counter.flush()

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(batch[one.id][0] for batch in store.batches) == 2000


def test_the_end_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread starts with the first repeat, and what waits at the end is written."""
    store, counter = Store(), RepeatCounter()
    counter.add(store, record(), replayed=True)
    thread = counter._thread
    assert thread is not None
    counter.drain()
    thread.join(5)
    assert not thread.is_alive()
    assert len(store.batches) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child(counter: RepeatCounter) -> None:
    """A child does not write what its parent has counted."""
    counter.add(Store(), record(), replayed=True)
    counter.reset_after_fork()
    assert not counter._waiting


def test_last_seen(counter: RepeatCounter) -> None:
    """It is the time of the host, when the request came."""
    counter.add(Store(), record(), replayed=True)
    (counted,) = counter._waiting.values()
    assert abs((counted.repeats.last_seen - datetime.now(timezone.utc)).total_seconds()) < 5
    assert counted.purge_at == record().purge_at
