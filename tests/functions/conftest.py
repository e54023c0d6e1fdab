"""The store of these calls: in memory with its own clock, or the database's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.test import override_settings

from django_idempotency import idempotent_function
from django_idempotency.runtime.registry import stores

from .helpers import LEASES, Clock


@pytest.fixture
def memory() -> Iterator[Any]:
    """Keep records in memory, with "lease"."""
    with override_settings(IDEMPOTENCY=LEASES):
        yield stores["default"]


@pytest.fixture
def clock(memory: Any) -> Clock:
    """Return the clock of the memory store."""
    memory._clock = Clock()
    return memory._clock  # type: ignore[no-any-return]


@pytest.fixture(params=["sync", "async"])
def guard(request: pytest.FixtureRequest) -> Any:
    """Return a maker of guarded functions; their calls are sync in either mode."""

    def make(work: Any, **given: Any) -> Any:
        given = {"key_prefix": "charge", **given}
        if request.param == "sync":

            @idempotent_function(**given)
            def charge(order: Any = None, amount: Any = 0, **more: Any) -> Any:
                return work(order, amount)

            return charge

        @idempotent_function(**given)
        async def acharge(order: Any = None, amount: Any = 0, **more: Any) -> Any:
            await asyncio.sleep(0)
            return work(order, amount)

        def called(*args: Any, **kwargs: Any) -> Any:
            return async_to_sync(acharge)(*args, **kwargs)

        called.idempotency = acharge.idempotency  # type: ignore[attr-defined]
        called.with_key = lambda key: async_to_sync(acharge.with_key(key))  # type: ignore[attr-defined]
        return called

    return make
