"""Resets what a forked child must not inherit: locks of threads that do not exist there, and their state."""

from __future__ import annotations

import os
import threading
from typing import Any, Protocol
from weakref import WeakSet


class Inherited(Protocol):
    """Process-wide state that a forked child inherits."""

    def reset_after_fork(self) -> None:
        """Forget what belongs to the parent. Called in the child, before anything else runs there."""


_INHERITED: WeakSet[Any] = WeakSet()


def reset_in_children(thing: Inherited) -> None:
    """Call `thing.reset_after_fork()` in each forked child, as long as something else refers to it."""
    _INHERITED.add(thing)


_LOCKS: WeakSet[Any] = WeakSet()


def new_lock() -> threading.Lock:
    """Return a lock that is open in a child, even if a thread of the parent holds it.

    It has the interpreter's own type: an interrupt inside an `__enter__` of ours would leave it locked permanently.
    """
    lock = threading.Lock()
    _LOCKS.add(lock)
    return lock


def _reset_after_fork() -> None:
    for lock in list(_LOCKS):
        if lock.locked():  # by a thread that does not exist here; any thread may release a lock of this type
            lock.release()
    for thing in list(_INHERITED):
        thing.reset_after_fork()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_reset_after_fork)
