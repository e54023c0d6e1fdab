"""What a swap store builds on three methods: here, over a dict."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from django_idempotency.core.records import Settlement, Status, Ticket
from django_idempotency.errors import LostRace
from django_idempotency.stores.base import Purged
from django_idempotency.stores.key_value.compare_and_swap import CompareAndSwapStore
from django_idempotency.testing import StoreContract
from django_idempotency.testing.tickets import make_ticket

from ..test_memory import Clock


class DictStore(CompareAndSwapStore):
    """A server that counts revisions, and deletes expired values at any time."""

    expires_natively = True

    def __init__(self) -> None:
        self.time = self.clock = Clock()
        self.values: dict[UUID, tuple[bytes, int]] = {}
        self._lock = threading.Lock()

    def load(self, record_id: UUID) -> tuple[bytes, int] | None:
        return self.values.get(record_id)

    def swap(self, record_id: UUID, value: bytes, *, version: Any, keep_until: datetime) -> bool:
        with self._lock:
            _, revision = self.values.get(record_id, (b"", None))
            if revision != version:
                return False
            self.values[record_id] = (value, (version or 0) + 1)
            return True

    def purge(self, *, limit: int, since: datetime | None = None) -> Purged:
        return Purged(count=0, resume=None)


class TestSwapStore(StoreContract):
    frozen = True

    @pytest.fixture
    def store(self) -> DictStore:
        return DictStore()

    def elapse(self, store: Any, seconds: float) -> None:
        store.time.now += timedelta(seconds=seconds)

    def vanish(self, store: Any, ticket: Ticket) -> None:
        store.values.pop(ticket.id, None)


class Beaten(DictStore):
    """Another client writes between each load and its swap."""

    def load(self, record_id: UUID) -> tuple[bytes, int] | None:
        loaded = super().load(record_id)
        if loaded is not None:
            self.values[record_id] = (loaded[0], loaded[1] + 1)
        return loaded


class Repeating(DictStore):
    """Its driver loses the first response, and retries on its own."""

    def swap(self, record_id: UUID, value: bytes, *, version: Any, keep_until: datetime) -> bool:
        super().swap(record_id, value, version=version, keep_until=keep_until)
        return super().swap(record_id, value, version=version, keep_until=keep_until)


def test_always_beaten() -> None:
    """A verb gives up, and reports that nothing was written."""
    store, ticket = Beaten(), make_ticket()
    store.claim(ticket)
    before = store.values[ticket.id][0]
    settlement = Settlement(
        status=Status.FREE, fence=ticket.owner, attempt=1, digest=b"", operation=ticket.owner
    )
    store.time.now += timedelta(seconds=ticket.lease)
    for verb in (lambda: store.settle(ticket, settlement), lambda: store.claim(make_ticket())):
        with pytest.raises(LostRace):
            verb()
    assert store.values[ticket.id][0] == before


def test_a_driver_that_repeats_a_swap() -> None:
    """A swap refused the second time was written the first time: the record is ours, and a takeover
    is reported.
    """
    store, crashed, ticket = Repeating(), make_ticket(lease=0), make_ticket()
    assert store.claim(crashed).owner == crashed.owner
    taken = store.claim(ticket)
    assert (taken.owner, taken.attempt, taken.taken) == (ticket.owner, 2, True)


def test_what_is_not_ours() -> None:
    """A foreign value counts as absent, and a claim overwrites it."""
    store, ticket = DictStore(), make_ticket()
    store.claim(ticket)
    value, version = store.values[ticket.id]
    store.values[ticket.id] = (b"?" + value[1:], version)
    assert store.get(ticket.id) is None
    later = make_ticket()
    assert store.claim(later).owner == later.owner
