"""The ORM store keeps the contract, and what only it can promise."""

from __future__ import annotations

import pytest

from django_idempotency.stores.orm import ORMStore
from django_idempotency.testing.clock import elapse
from django_idempotency.testing.contract import StoreContract


class ORMStoreContract(StoreContract):
    def elapse(self, store: ORMStore, seconds: float) -> None:
        elapse(seconds, using=store.using)


@pytest.mark.django_db(transaction=True)
class TestAutocommit(ORMStoreContract):
    """As a server runs it."""


@pytest.mark.django_db
class TestInsideATransaction(ORMStoreContract):
    """As a test case runs it, or a view that has opened atomic() above us."""
