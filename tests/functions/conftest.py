"""The store under these calls: in memory, with a clock of its own, or the database's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import override_settings

from django_idempotency.registry import stores

from .acting import LEASES, Clock


@pytest.fixture
def memory() -> Iterator[Any]:
    """Keep records in memory, under "lease"."""
    with override_settings(IDEMPOTENCY=LEASES):
        yield stores["default"]


@pytest.fixture
def clock(memory: Any) -> Clock:
    """Return the clock of the memory's records."""
    memory._clock = Clock()
    return memory._clock  # type: ignore[no-any-return]
