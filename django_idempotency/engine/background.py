"""A thread of this process that does one kind of work as long as there is some.

Each job has its own.

The jobs (heartbeat, deferred settles, late events, counts) share no thread: a receiver or a store
that does not return must not let the leases of others end.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod

from ..core.concurrency import reset_in_children


class Background(ABC):
    """A daemon thread that is started when there is work, and ends when there is none. Thread safe.

    A fork has none, and begins with an empty state. An interrupted thread is replaced when more
    work comes. `_lock` protects the state; `_changed` wakes the thread.
    """

    #: Of the thread.
    name: str

    def __init__(self) -> None:
        self.reset_after_fork()
        reset_in_children(self)

    def reset_after_fork(self) -> None:
        """Forget what is waiting: after a fork it is the parent's, and the thread does not
        exist.
        """
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None

    def _start(self) -> None:
        """Start the thread unless it runs.

        Called with the lock. Raises `RuntimeError` where no thread can be started.
        """
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=self.name, daemon=True)
            thread.start()
            self._thread = thread

    def _run(self) -> None:
        try:
            while self._pause():
                self._work()
        finally:
            with self._lock:
                if self._thread is threading.current_thread():  # it was interrupted
                    self._thread = None
                self._changed.notify_all()

    def _end(self) -> bool:
        """Let the thread end: a later _start() begins another.

        Called by `_pause()`, with the lock. Returns `False`.
        """
        self._thread = None
        return False

    @abstractmethod
    def _pause(self) -> bool:
        """Wait until there is work. `False`, from `_end()`: there is none."""

    @abstractmethod
    def _work(self) -> None:
        """Do the work that there is."""
