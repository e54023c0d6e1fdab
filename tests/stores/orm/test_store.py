"""The ORM store keeps the contract, and its own promises."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from django.db import connections

from django_idempotency.core.records import Ticket
from django_idempotency.models import IdempotencyRecord
from django_idempotency.stores.base import BaseStore
from django_idempotency.stores.orm import ORMStore
from django_idempotency.testing import StoreContract
from django_idempotency.testing.clock import elapse
from tests.support.combining import COMBINED, KIND

from ..elsewhere import orm_store
from ..helpers import committed

#: Trips of every step of the contract: if the insert is tried first, and if the key is looked up
#: first.
INSERT_FIRST = {
    "claim": 1,
    **dict.fromkeys(("ours", "busy", "mismatch", "replay"), 2),  # insert, read
    # Insert, read, take, insert, read.
    **dict.fromkeys(("takeover", "next attempt", "new life"), 5),
    **dict.fromkeys(("settle", "release", "late settle", "renew", "renew many", "get"), 1),
}
#: The same if one message inserts and reads.
INSERT_AND_READ = {
    **INSERT_FIRST,
    **dict.fromkeys(("ours", "busy", "mismatch", "replay"), 1),
    # Insert and read, take, insert and read.
    **dict.fromkeys(("takeover", "next attempt", "new life"), 3),
}
READ_FIRST = {
    **INSERT_FIRST,
    "claim": 2,  # read, insert
    **dict.fromkeys(("ours", "busy", "mismatch", "replay"), 1),
    **dict.fromkeys(("takeover", "next attempt", "new life"), 3),  # read, take, read
}
#: Two statements bound how long an INSERT, or a takeover, waits for a row.
BOUNDED = {
    **READ_FIRST,
    "claim": 5,  # read, insert in its bounds, read
    **dict.fromkeys(("takeover", "next attempt", "new life"), 5),  # read, take in its bounds, read
    **dict.fromkeys(("renew", "renew many"), 3),
}


class ORMStoreContract(StoreContract):
    def elapse(self, store: ORMStore, seconds: float) -> None:
        elapse(seconds, using=store.using)

    def vanish(self, store: Any, ticket: Ticket) -> None:
        IdempotencyRecord.objects.filter(pk=ticket.id).delete()


@committed
class TestAutocommit(ORMStoreContract):
    """As on a server."""

    def expected_costs(self) -> Mapping[str, int]:
        ours = {"sqlite": READ_FIRST, "postgresql": INSERT_AND_READ, "mysql": BOUNDED}
        return ours.get(KIND, INSERT_FIRST)

    @contextmanager
    def trips(self, store: ORMStore) -> Iterator[list[str]]:
        statements: list[str] = []

        def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
            statements.append(sql)
            return execute(sql, params, many, context)

        # What is open already, an async call leaves open.
        connections[store.using].ensure_connection()
        with connections[store.using].execute_wrapper(note):
            yield statements

    def elsewhere(self, store: ORMStore) -> Callable[[], BaseStore]:
        return partial(
            orm_store, str(connections[store.using].settings_dict["NAME"]), combine=store.combine
        )


@pytest.mark.skipif(not COMBINED, reason="nothing is combined anyway")
class TestApart(TestAutocommit):
    """Each statement in a message of its own, as behind a proxy that takes one."""

    claimers = examples = 10

    @pytest.fixture
    def store(self) -> ORMStore:
        return ORMStore(combine=False)

    def expected_costs(self) -> Mapping[str, int]:
        return INSERT_FIRST


@pytest.mark.django_db
class TestInsideATransaction(ORMStoreContract):
    """As in a test case, or in a view that has opened atomic() around us."""

    shared = False
