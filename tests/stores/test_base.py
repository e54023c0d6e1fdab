"""What every store inherits: its layers, and an operator's changes, which are audited even if their
outcome is unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import MagicMock

import pytest

from django_idempotency.core.interventions import CHANGES, Intervention, released
from django_idempotency.core.records import Outcome, Record, Settlement, Status, Ticket
from django_idempotency.errors import StoreUnavailable
from django_idempotency.stores.base import BaseStore, innermost, layers
from django_idempotency.stores.memory import MemoryStore
from django_idempotency.stores.wrapper import WrappedStore
from django_idempotency.testing.tickets import make_ticket


def crashed(store: MemoryStore, ticket: Ticket) -> None:
    store.claim(ticket)


def completed(store: MemoryStore, ticket: Ticket) -> None:
    store.claim(ticket)
    outcome = Outcome(status=201)
    store.settle(
        ticket,
        Settlement(
            status=Status.COMPLETED,
            fence=ticket.owner,
            attempt=1,
            digest=b"",
            operation=ticket.owner,
            outcome=outcome,
        ),
    )


@pytest.mark.parametrize("ended", [crashed, completed])
@pytest.mark.parametrize("verb", ["release", "expire"])
def test_a_lost_response(
    monkeypatch: pytest.MonkeyPatch, verb: str, ended: Callable[[MemoryStore, Ticket], None]
) -> None:
    """The change was made without a response: it is still audited."""
    store, ticket, audited = MemoryStore(), make_ticket(lease=0), list[Record]()
    ended(store, ticket)
    before = store.get(ticket.id)
    settle = store.settle

    def silent(*arguments: Any) -> bool:
        settle(*arguments)
        raise StoreUnavailable

    monkeypatch.setattr(store, "settle", silent)
    with pytest.raises(StoreUnavailable):
        store.change(ticket.id, CHANGES[verb], audit=audited.append)
    assert [(each.owner, each.status) for each in audited] == [
        (ticket.owner, before and before.status)
    ]
    assert store.change(ticket.id, CHANGES[verb], audit=audited.append) is Intervention.ALREADY


@pytest.mark.parametrize("ended", [crashed, completed])
@pytest.mark.parametrize("verb", ["release", "expire"])
def test_a_driver_that_tries_again(
    monkeypatch: pytest.MonkeyPatch, verb: str, ended: Callable[[MemoryStore, Ticket], None]
) -> None:
    """The first try made the change, and its response was lost; the second is refused because of
    the first.
    """
    store, ticket, audited = MemoryStore(), make_ticket(lease=0), list[Record]()
    ended(store, ticket)
    settle = store.settle

    def twice(*arguments: Any) -> bool:
        settle(*arguments)
        return settle(*arguments)

    monkeypatch.setattr(store, "settle", twice)
    assert store.change(ticket.id, CHANGES[verb], audit=audited.append) is Intervention.DONE
    assert [each.owner for each in audited] == [ticket.owner]


def test_no_response_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was tried, so nothing is audited."""
    store, audited = MemoryStore(), list[Record]()

    def silent(*_: Any) -> None:
        raise StoreUnavailable

    monkeypatch.setattr(store, "get", silent)
    with pytest.raises(StoreUnavailable):
        store.change(make_ticket().id, released, audit=audited.append)
    assert audited == []


class OwnStore(MemoryStore):
    """Keeps something under each name that a project may use for it."""

    def __init__(self, kept: Any) -> None:
        super().__init__()
        self.store = self.inside = kept


def test_layers() -> None:
    inner = MemoryStore()
    middle = WrappedStore(inner)
    outer = WrappedStore(middle)
    assert [*layers(outer)] == [outer, middle, inner]
    assert innermost(outer) is inner


@pytest.mark.parametrize("kept", [{}, {"a": 1}, "db", None])
def test_only_a_store_is_inside(kept: Any) -> None:
    """A project's store may use our names for something else."""
    assert [*layers(store := OwnStore(kept))] == [store]


def test_a_store_that_is_kept_as_such_is_no_layer() -> None:
    """Only `inside` is followed: `store` is a name that a project may use for what it likes."""
    store = MemoryStore()
    store.store = MemoryStore()  # type: ignore[attr-defined]
    assert [*layers(store)] == [store]


def test_layers_end() -> None:
    """A mock has every attribute, and a store may name itself or one around it."""
    mock = MagicMock(spec=BaseStore)
    assert [*layers(mock)] == [mock]
    inner = OwnStore(None)
    inner.inside = outer = WrappedStore(inner)
    assert [*layers(outer)] == [outer, inner]
    itself = OwnStore(None)
    itself.inside = itself
    assert [*layers(itself)] == [itself]
