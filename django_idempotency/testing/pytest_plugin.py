"""Fixtures for pytest, which finds them when the package is installed.

Nothing is loaded until one is requested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from . import overriding
    from .recording import RecordingStore


@pytest.fixture
def override_idempotency() -> type[overriding.override_idempotency]:
    """Return the context manager of that name."""
    from . import overriding

    return overriding.override_idempotency


@pytest.fixture
def idempotency_disabled() -> Iterator[None]:
    """Switch idempotency off for this test."""
    from . import overriding

    with overriding.override_idempotency(enabled=False):
        yield


@pytest.fixture
def assert_idempotent() -> Callable[..., Any]:
    """Return the function: `assert_idempotent(act, times=20, effects=Charge.objects.count)`."""
    from . import asserting

    return asserting.assert_idempotent


@pytest.fixture
def recording_store(request: pytest.FixtureRequest) -> Iterator[RecordingStore]:
    """Return the default store, which records its calls in `verbs`.

    For another store, parametrize with its alias.
    """
    from .. import conf
    from ..runtime.registry import stores
    from .recording import RecordingStore

    alias = getattr(request, "param", None) or conf.get("STORE")
    store = RecordingStore(stores[alias])
    with stores.replaced(alias, store):
        yield store
