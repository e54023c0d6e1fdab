"""Which dialect a connection gets, and that a dialect from outside keeps the contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from django.db import connection, connections

from django_idempotency.core.records import Ticket
from django_idempotency.errors import ConfigurationError
from django_idempotency.models import IdempotencyRecord
from django_idempotency.stores.base import BaseStore
from django_idempotency.stores.orm import ORMStore, dialects
from django_idempotency.stores.orm.dialects import Dialect, dialect, register_dialect
from django_idempotency.testing import StoreContract
from django_idempotency.testing.clock import elapse
from django_idempotency.testing.tickets import make_ticket

from ..elsewhere import plain_store
from ..helpers import committed, connected_otherwise
from .plain_database.dialect import Plain


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> list[type[Dialect]]:
    """Return the dialects, which are put back afterwards."""
    known = list(dialects._DIALECTS)
    monkeypatch.setattr(dialects, "_DIALECTS", known)
    return known


@pytest.fixture
def plain(db: None, registered: list[type[Dialect]]) -> Iterator[None]:
    """Reach the test database through the other backend."""
    register_dialect(Plain)
    with connected_otherwise(ENGINE=f"{__package__}.plain_database"):
        yield


@pytest.mark.skipif(
    connection.vendor != "postgresql", reason="the other backend is PostgreSQL underneath"
)
@committed
class TestPlainDatabase(StoreContract):
    """A server without SKIP LOCKED, transaction ids, row addresses and settings for one
    statement.
    """

    claimers = examples = 10

    @pytest.fixture
    def store(self, plain: None) -> ORMStore:
        return ORMStore()

    def elapse(self, store: ORMStore, seconds: float) -> None:
        elapse(seconds, using=store.using)

    def vanish(self, store: Any, ticket: Ticket) -> None:
        IdempotencyRecord.objects.filter(pk=ticket.id).delete()

    def elsewhere(self, store: ORMStore) -> Callable[[], BaseStore]:
        return partial(plain_store, str(connection.settings_dict["NAME"]))


class Strict(Plain):
    """Suits only the servers that it knows."""

    knows: tuple[str, ...] = ()

    @classmethod
    def suits(cls, connection: Any) -> bool:
        return connection.alias in cls.knows


def test_the_server_decides(
    registered: list[type[Dialect]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the dialects of a vendor, the last one registered that suits the server is used."""
    monkeypatch.setattr(connection, "vendor", "plain")
    register_dialect(Plain)
    register_dialect(Strict)
    register_dialect(Strict)
    assert type(dialect(connections["default"])) is Plain
    monkeypatch.setattr(Strict, "knows", ("default",))
    assert type(dialect(connections["default"])) is Strict
    assert registered.count(Strict) == 1


@pytest.mark.django_db
def test_no_dialect(monkeypatch: pytest.MonkeyPatch) -> None:
    """With checks skipped, a database without a dialect is an error of the configuration"""
    monkeypatch.setattr(connections["default"], "vendor", "oracle")
    for act in (lambda: ORMStore().claim(make_ticket()), lambda: ORMStore().purge(limit=1)):
        with pytest.raises(ConfigurationError, match="'oracle'"):
            act()
