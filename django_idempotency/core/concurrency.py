"""Async work that a cancellation must not cut short, blocking calls from async code, and what a
forked child must not inherit.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextvars import copy_context
from itertools import starmap
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

from asgiref.sync import sync_to_async

T = TypeVar("T")


async def run_to_completion(work: Coroutine[Any, Any, T]) -> T:
    """Await `work` until it is done, even if this task is cancelled in the meantime; then raise the
    cancellation.

    A shield alone would let the task continue, and leave `work` behind to run in an event loop that
    is closing.
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


def nothing() -> None:
    """Close nothing. This is the default."""


async def in_thread(
    call: Callable[..., T],
    *given: Any,
    thread_sensitive: bool = True,
    close: Callable[[], None] = nothing,
    when: bool = True,
) -> T:
    """Make a call in a thread, as `sync_to_async` does; here if not `when`, for one that blocks
    only sometimes.

    Once the main thread has ended, the interpreter's executors accept no more work, but other
    threads and their event loops continue. Finished work must still be settled, so the call then
    runs in a new thread, which calls `close` at its end.
    """
    if not when:
        return call(*given)
    began = False

    def begin() -> T:
        nonlocal began
        began = True
        return call(*given)

    try:
        return await sync_to_async(begin, thread_sensitive=thread_sensitive)()
    except RuntimeError:
        if began:
            raise
    done: Future[T] = Future()
    threading.Thread(target=copy_context().run, args=(_run, done, begin, close)).start()
    return await asyncio.wrap_future(done)


def _run(done: Future[T], call: Callable[[], T], close: Callable[[], None]) -> None:
    try:
        done.set_result(call())
    except BaseException as error:  # noqa: BLE001 - passed on to the awaiting task
        done.set_exception(error)
    finally:
        close()


# -------------------------------------------------------------------------------------------- locks


def holding(lock: threading.Lock | threading.RLock, act: Callable[..., T], *given: Any) -> T:
    """Make a call with a lock, which is as before afterwards, wherever an interrupt raises.

    `with` does not promise that: an interrupt may come between its last line and the release, and
    on Python 3.14 also between taking the lock and its first line (CPython gh-148874). Here what
    was cut is done one frame further out.
    """
    hold = _Hold(lock)
    try:
        return hold.during(act, given)
    finally:
        hold.leave()


class _Hold:
    """One hold of a lock. It is taken, and noted as taken, in one step of C, in which no signal
    handler runs.
    """

    def __init__(self, lock: threading.Lock | threading.RLock) -> None:
        self._lock = lock
        self._taken: list[object] = []
        self._left: list[object] = []

    def during(self, act: Callable[..., T], given: tuple[Any, ...]) -> T:
        try:
            self._taken.extend(starmap(self._lock.acquire, [()]))
            return act(*given)
        finally:
            self.leave()

    def leave(self) -> None:
        if self._taken and not self._left:
            self._left.extend(starmap(self._lock.release, [()]))


# ---------------------------------------------------------------------------------- forked children


class Inherited(Protocol):
    """Process-wide state that a forked child inherits."""

    def reset_after_fork(self) -> None:
        """Forget what belongs to the parent.

        Called in the child, before anything else runs there.
        """


_INHERITED: WeakSet[Any] = WeakSet()


def reset_in_children(thing: Inherited) -> None:
    """Call `thing.reset_after_fork()` in each forked child, as long as something else refers to
    it.
    """
    _INHERITED.add(thing)


_LOCKS: WeakSet[Any] = WeakSet()


def new_lock() -> threading.Lock:
    """Return a lock that is open in a child, even if a thread of the parent holds it.

    It has the interpreter's own type: an interrupt inside an `__enter__` of ours would leave it
    locked permanently.
    """
    lock = threading.Lock()
    _LOCKS.add(lock)
    return lock


def _reset_after_fork() -> None:
    for lock in list(_LOCKS):
        # By a thread that does not exist here; any thread may release a lock of this type.
        if lock.locked():
            lock.release()
    for thing in list(_INHERITED):
        thing.reset_after_fork()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_reset_after_fork)
