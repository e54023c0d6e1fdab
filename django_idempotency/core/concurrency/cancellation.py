"""Runs async work to completion despite a cancellation, such as a client's disconnect."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def run_to_completion(work: Coroutine[Any, Any, T]) -> T:
    """Await `work` until it is done, even if this task is cancelled in the meantime; then raise the cancellation.

    A shield alone would let the task continue, and leave `work` behind to run in an event loop that is closing.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
        except Exception:  # noqa: BLE001, S110 - the task keeps it for result()
            pass
    if cancelled is None:
        return task.result()
    task.exception()  # retrieved, so asyncio does not warn; the cancellation takes precedence
    raise cancelled
