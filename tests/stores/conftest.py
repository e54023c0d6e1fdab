"""Stores with real commits, and threads with connections of their own."""

from __future__ import annotations

import pytest

from django_idempotency.stores.orm import ORMStore

pytest.register_assert_rewrite("django_idempotency.testing.contract")


@pytest.fixture
def store() -> ORMStore:
    return ORMStore()
