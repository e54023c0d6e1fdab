"""Blocking calls from async code, even while the interpreter shuts down."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from typing import Any, TypeVar

from asgiref.sync import sync_to_async

T = TypeVar("T")


def nothing() -> None:
    """Close nothing. This is the default."""


async def in_thread(
    call: Callable[..., T],
    *given: Any,
    thread_sensitive: bool = True,
    close: Callable[[], None] = nothing,
    when: bool = True,
) -> T:
    """Make a call in a thread, as `sync_to_async` does; here if not `when`, for one that blocks only sometimes.

    Once the main thread has ended, the interpreter's executors accept no more work, but other threads and their event
    loops continue. Finished work must still be settled, so the call then runs in a new thread, which calls `close` at
    its end.
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
