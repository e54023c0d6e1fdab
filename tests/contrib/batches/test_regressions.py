"""Regressions of batches."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from django_idempotency import idempotent_function
from django_idempotency.contrib.batches import aprocess_batch

from .helpers import guarded, process, sync_and_async

pytestmark = pytest.mark.usefixtures("memory")


@sync_and_async
def test_a_record_without_an_id_holds_its_group_back(mode: str) -> None:
    ran: list[Any] = []
    handler = guarded(lambda record: ran.append(record["n"]), mode, key="record.n")
    records = [{"group": "a", "n": 1}, {"id": 2, "group": "a", "n": 2}]
    process(
        records, handler, mode, item_id=lambda record: record["id"], ordered=True, group_id="group"
    )
    assert ran == []


@sync_and_async
def test_a_group_of_several_parts(mode: str) -> None:
    ran: list[Any] = []
    handler = guarded(lambda record: ran.append(record["n"]), mode, key="record.n")
    records = [{"id": n, "shop": "x", "group": "a", "n": n} for n in (1, 2)]
    process(records, handler, mode, ordered=True, group_id="[shop, group]")
    assert ran == [1, 2]


def test_nothing_is_started_after_a_cancellation() -> None:
    """Nothing is started, even if a handler turns its own cancellation into a result."""
    ran: list[int] = []
    began = asyncio.Event()

    @idempotent_function(key="record", guarantee="lease", key_prefix="cancelled")
    async def handle(record: int) -> None:
        ran.append(record)
        began.set()
        try:
            await asyncio.sleep(10 if record == 0 else 0)
        except asyncio.CancelledError:
            return

    async def main() -> None:
        task = asyncio.create_task(aprocess_batch(range(20), handle, concurrency=1))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert ran == [0]
