"""The memory store keeps the contract."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from django_idempotency.core.records import Ticket
from django_idempotency.stores.memory import MemoryStore
from django_idempotency.testing import StoreContract


class Clock:
    """A clock that only the test advances."""

    def __init__(self) -> None:
        self.now = datetime(2030, 1, 1, tzinfo=timezone.utc)

    def __call__(self) -> datetime:
        return self.now


class TestMemoryStore(StoreContract):
    frozen = True

    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore(clock=Clock())

    def elapse(self, store: Any, seconds: float) -> None:
        store._clock.now += timedelta(seconds=seconds)

    def vanish(self, store: Any, ticket: Ticket) -> None:
        store._records.pop(ticket.id.int, None)
