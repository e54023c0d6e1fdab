"""Acts of any store: a new key, a known key, the end of the work."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from django_idempotency.core.records import Guarantee, Ticket
from django_idempotency.stores.base import BaseStore
from django_idempotency.testing.tickets import make_ticket

from .measuring import Act, Case
from .store import settlement, ticket


def finished(store: BaseStore) -> Ticket:
    """Settle a response of 1 kB, and return the ticket of a retry."""
    mine = claimed(store)
    store.settle(mine, settlement(mine))
    return make_ticket(key=mine.key, guarantee=Guarantee.LEASE)


def claimed(store: BaseStore) -> Ticket:
    mine = ticket(Guarantee.LEASE)
    store.claim(mine)
    return mine


def claim(store: BaseStore) -> Case:
    return Case("claim of a new key", lambda: partial(store.claim, ticket(Guarantee.LEASE)))


def replay(store: BaseStore, name: str = "claim of a known key (replay)") -> Case:
    known = finished(store)
    store.claim(known)  # puts it into a layered store's front, too
    return Case(name, lambda: partial(store.claim, known))


def settle(store: BaseStore) -> Case:
    def prepare() -> Act:
        mine = claimed(store)
        return partial(store.settle, mine, settlement(mine))

    return Case("settle", prepare)


def first_call(store: BaseStore) -> Case:
    def act(mine: Ticket) -> None:
        store.claim(mine)
        store.settle(mine, settlement(mine))

    return Case("first call (claim and settle)", lambda: partial(act, ticket(Guarantee.LEASE)))


def count(case: Case, sent: list[str]) -> int:
    """Count the entries that an act adds to the list."""
    act: Callable[[], object] = case.prepare()
    before = len(sent)
    act()
    return len(sent) - before
