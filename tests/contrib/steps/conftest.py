"""Records in memory, with a clock that the test sets; steps in the test's database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import override_settings

from django_idempotency.runtime.registry import stores

from ...functions.helpers import LEASES, Clock
from . import work


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    work.reset()


@pytest.fixture
def clock() -> Iterator[Clock]:
    """Keep records in memory, under "lease", and return the clock of their store."""
    with override_settings(IDEMPOTENCY={**LEASES, "LEASE": 30}):
        store: Any = stores["default"]
        store._clock = clock = Clock()
        yield clock
