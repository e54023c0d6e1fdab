"""Many calls at one moment: threads around one store, and processes that each create the same store."""

from __future__ import annotations

import multiprocessing
import os
import threading
import traceback
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any, TypeVar
from uuid import uuid4

import django

from ...core import rules
from ...core.records import Settlement, Ticket
from ...errors import LostRace
from ...stores.base import BaseStore

T = TypeVar("T")
#: What one of many does. To be picklable for another process, it is a function of a module, or a `partial` of one.
Act = Callable[[BaseStore], T]

#: Seconds until a missing participant is given up.
PATIENCE = 60
PROCESSES = 4


def claimed(ticket: Ticket, store: BaseStore) -> rules.Verdict:
    """Claim and read, as the engine does: after a lost race it tries once more, and is then busy."""
    for _ in range(2):
        try:
            return rules.read(store.claim(ticket), ticket)
        except LostRace:
            continue
    return rules.Busy(retry_after=1)


def settled(ticket: Ticket, settlement: Settlement, store: BaseStore) -> bool:
    """Settle. After a lost race nothing is settled."""
    try:
        return store.settle(ticket, settlement)
    except LostRace:
        return False


def together(store: BaseStore, acts: Sequence[Act[T]], *, when: Callable[[], object] = lambda: None) -> list[T]:
    """Run each act in its own thread. All are connected first, and released at one moment: when `when` returns."""
    ready, start = threading.Barrier(len(acts) + 1), threading.Barrier(len(acts) + 1)

    def run(act: Act[T]) -> T:
        try:
            store.get(uuid4())
            ready.wait(PATIENCE)
            start.wait(PATIENCE)
            return act(store)
        except BaseException:
            ready.abort()  # no thread is to wait for this one
            raise
        finally:
            store.close()

    with ThreadPoolExecutor(len(acts)) as pool:
        running = [pool.submit(run, act) for act in acts]
        try:
            ready.wait(PATIENCE)
            when()
            start.wait(PATIENCE)
        except threading.BrokenBarrierError:
            start.abort()
        except BaseException:
            start.abort()
            raise
        errors = [error for each in running if (error := each.exception(PATIENCE)) is not None]
        for error in errors:
            if not isinstance(error, threading.BrokenBarrierError):
                raise error
        return [each.result() for each in running]


class Workers:
    """Processes that wait for work. They have this process's environment, settings and import path."""

    def __init__(self, size: int = PROCESSES) -> None:
        context = multiprocessing.get_context("spawn")
        self._size = size
        self._manager = context.Manager()
        self._pool = ProcessPoolExecutor(size, mp_context=context, initializer=_begin)

    def act(self, make: Callable[[], BaseStore], acts: Sequence[Act[T]]) -> list[T]:
        """Distribute the acts, release all at one moment, and return the result of each."""
        shares = [acts[number :: self._size] for number in range(min(self._size, len(acts)))]
        start = self._manager.Barrier(len(shares))
        running = [self._pool.submit(_act, make, share, start) for share in shares]
        failed = [str(error) for each in running if (error := each.exception(2 * PATIENCE)) is not None]
        assert not failed, "\n".join(failed)
        results: list[Any] = [None] * len(acts)
        for number, each in enumerate(running):
            results[number :: self._size] = each.result()
        return results

    def leave(self) -> None:
        self._pool.shutdown()
        self._manager.shutdown()


def _begin() -> None:
    warnings.simplefilter("ignore", ResourceWarning)  # no verb closes a store for good: its connections end with us
    if os.environ.get("DJANGO_SETTINGS_MODULE"):
        django.setup()


def _act(make: Callable[[], BaseStore], acts: Sequence[Act[T]], start: threading.Barrier) -> list[T]:
    try:
        return together(make(), acts, when=lambda: start.wait(PATIENCE))
    except Exception:  # noqa: BLE001 - not every error can be sent to another process
        start.abort()
        raise AssertionError(f"In another process:\n{traceback.format_exc()}") from None
