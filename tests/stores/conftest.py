"""The store under test, and nothing left open behind a failing test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from django_idempotency.stores.orm import ORMStore

from .acting import CALLS

pytest.register_assert_rewrite("django_idempotency.testing.contract")


@pytest.fixture
def store() -> ORMStore:
    return ORMStore()


@pytest.fixture(autouse=True)
def closed(db: None) -> Iterator[None]:
    """End the guards that a failing test holds: they would fail all that follow."""
    CALLS.clear()
    yield
    for call in reversed(CALLS):
        with suppress(Exception):
            call.operation._end_guard(giving_up=True)
