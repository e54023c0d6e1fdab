"""The async shell of an operation: each call to its store is made in a thread, and no thread waits
for a busy record.

The operation has a lease: no transaction stays open while async work runs. What was begun runs to
its end, whatever cancels the task meanwhile, so that a cancelled call never frees a key early.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

from ..core.concurrency import run_to_completion
from ..core.rules import Verdict
from ..stores.base import BaseStore, innermost
from ..stores.lending import in_database_thread
from .deadlines import ENDS, time_for
from .operation import WAITED_FOR, Operation
from .waiting import pauses

T = TypeVar("T")


async def aopen(operation: Operation, wait: float = 0.0) -> Verdict:
    """Open an operation as `Operation.open` does.

    A cancellation leaves the key unchanged: nothing has run.
    """
    if ENDS.get() is not None:
        wait = time_for(wait)
    try:
        verdict = await in_thread_of(operation.store, _first_look, operation, wait)
        if wait > 0 and isinstance(verdict, WAITED_FOR):
            verdict = await _turn(operation, verdict, wait)
            await in_thread_of(operation.store, operation.opened, verdict)
    except GeneratorExit:  # nothing can be awaited any more: the key is busy until its lease ends
        operation.close()
        raise
    except BaseException:
        await aabandon(operation)
        raise
    return verdict


async def aabandon(operation: Operation) -> None:
    """Abandon an operation as `Operation.abandon` does."""
    if operation.run is not None:
        await in_thread_of(operation.store, operation.abandon)


def _first_look(operation: Operation, wait: float) -> Verdict:
    """Claim the key, and report the verdict unless the call waits for another one."""
    verdict = operation.claim()
    if wait <= 0 or not isinstance(verdict, WAITED_FOR):
        operation.opened(verdict)
    return verdict


async def _turn(operation: Operation, busy: Verdict, wait: float) -> Verdict:
    """Claim a busy key again until it is free or `wait` seconds have passed."""
    started = time.monotonic()
    for pause, _ in pauses(wait):
        await asyncio.sleep(pause)
        busy = await in_thread_of(operation.store, operation.claim_again, busy)
        if not isinstance(busy, WAITED_FOR):
            break
    operation.waited = time.monotonic() - started
    return busy


async def in_thread_of(store: BaseStore, call: Callable[..., T], *given: Any) -> T:
    """Make a call that uses a store in a thread, to its end.

    A store in a Django database shares the connection of the request, in the request's thread. So
    does one in memory, for the receivers of its events. A store with a server of its own takes
    another thread, so that a slow server holds nobody else's. The connections that receivers open
    there are given back either way.
    """
    shared = shares_thread(store)
    return await run_to_completion(in_database_thread(call, *given, thread_sensitive=shared))


def shares_thread(store: BaseStore) -> bool:
    """Is a store used in the thread of the request? See in_thread_of()."""
    return store.using is not None or innermost(store).in_process
