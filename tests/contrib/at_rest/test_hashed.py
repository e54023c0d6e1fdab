"""Scopes and keys as hashes: no key runs twice when it is switched on or off, and nothing else
changes.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from django_idempotency.contrib.at_rest.hashed import HashedStore
from django_idempotency.core import rules
from django_idempotency.core.at_rest import HASHED
from django_idempotency.core.conclusions import SettledState
from django_idempotency.core.records import Guarantee, Ticket
from django_idempotency.core.rules import Execute, Mismatch, Replay
from django_idempotency.stores.base import BaseStore
from django_idempotency.stores.memory import MemoryStore
from django_idempotency.stores.orm import ORMStore
from django_idempotency.testing.contract.base import Contract
from django_idempotency.testing.contract.claims import Claims
from django_idempotency.testing.contract.endings import Endings
from django_idempotency.testing.tickets import make_ticket

from ...stores import test_memory
from ...stores.test_memory import Clock


def hashed(store: BaseStore, secret: str = "secret") -> HashedStore:
    return HashedStore(store, lambda: secret)


class TestHashedMemory(Claims, Endings, Contract):
    """All but one: a collision of ids, which a hash of an earlier secret could not be told from."""

    frozen = True
    test_a_collision = None  # type: ignore[assignment]

    @pytest.fixture
    def store(self) -> HashedStore:
        return hashed(MemoryStore(clock=Clock()))

    def elapse(self, store: Any, seconds: float) -> None:
        test_memory.TestMemoryStore.elapse(self, store.store, seconds)  # type: ignore[arg-type]

    def vanish(self, store: Any, ticket: Ticket) -> None:
        test_memory.TestMemoryStore.vanish(self, store.store, ticket)  # type: ignore[arg-type]


@pytest.fixture(params=["memory", "orm"])
def inner(request: pytest.FixtureRequest) -> BaseStore:
    if request.param == "memory":
        return MemoryStore()
    request.getfixturevalue("db")
    return ORMStore()


def test_no_text_inside(inner: BaseStore) -> None:
    """The scope's hash is the same for each of its keys, and the key's differs between scopes."""
    store = hashed(inner)
    tickets = [
        make_ticket(scope=scope, key=key)
        for scope in ("user:1", "user:2")
        for key in ("order-1", "order-2")
    ]
    for ticket in tickets:
        record = store.claim(ticket)
        assert (record.scope, record.key) == (ticket.scope, ticket.key)
    found = [inner.get(ticket.id) for ticket in tickets]
    assert len({record.scope for record in found if record}) == 2
    assert len({record.key for record in found if record}) == 4
    assert all(
        record and record.scope.startswith(HASHED) and record.key.startswith(HASHED)
        for record in found
    )


@pytest.mark.parametrize("switch", ["on", "off", "another secret"])
@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_switched_under_live_records(inner: BaseStore, switch: str, guarantee: Guarantee) -> None:
    """A finished key is replayed, a running one is busy, a free one runs as its next attempt,
    another body is refused.
    """
    before, after = {
        "on": (inner, hashed(inner)),
        "off": (hashed(inner), inner),
        "another secret": (hashed(inner), hashed(inner, "new")),
    }[switch]
    act = Contract()
    done, free, running = (
        make_ticket(key=key, guarantee=Guarantee.LEASE) for key in ("done", "free", "running")
    )
    act.leave(before, done, SettledState.COMPLETED, act.outcomes[0])
    act.leave(before, free, SettledState.BOUND)
    before.claim(running)

    def verdict(ticket: Ticket, **changed: Any) -> Any:
        retry = ticket._replace(owner=uuid4(), guarantee=guarantee, **changed)
        return rules.read(after.claim(retry), retry)

    assert verdict(done) == Replay(outcome=act.outcomes[0], attempt=1)
    assert isinstance(verdict(done, digest=b"another".ljust(32)), Mismatch)
    assert isinstance(verdict(running), rules.Busy)
    assert after.settle(
        running,
        act.settlement(running, SettledState.COMPLETED, Execute(attempt=1), act.outcomes[0]),
    )
    assert isinstance(verdict(running), Replay)
    assert verdict(free) == Execute(attempt=2)
