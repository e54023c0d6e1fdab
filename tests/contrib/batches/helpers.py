"""Records, handlers that do what a record says, and helpers to read a report."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from django_idempotency import idempotent_function
from django_idempotency.contrib.batches import BatchReport, aprocess_batch, process_batch

Process = Any


def guarded(work: Any, mode: str, **terms: Any) -> Any:
    """Guard a function of a record, sync or async."""
    terms = {"key_prefix": "handle", **terms}
    if mode == "sync":

        @idempotent_function(**terms)
        def handle(record: Any) -> Any:
            return work(record)

        return handle

    @idempotent_function(**terms)
    async def ahandle(record: Any) -> Any:
        await asyncio.sleep(0)
        return work(record)

    return ahandle


def process(records: Any, handler: Any, mode: str, **options: Any) -> BatchReport:
    """Run a batch in either mode."""
    if mode == "sync":
        return process_batch(records, handler, **options)
    return async_to_sync(aprocess_batch)(records, handler, **options)


def outcomes(report: BatchReport) -> dict[str, list[Any]]:
    """Return outcome → the positions of the records that had it, without empty outcomes."""
    found = {
        "succeeded": report.succeeded,
        "replayed": report.replayed,
        "busy": report.busy,
        "failed": report.failed,
        "not_started": report.not_started,
    }
    return {name: [item.index for item in items] for name, items in found.items() if items}


sync_and_async = pytest.mark.parametrize("mode", ["sync", "async"])
