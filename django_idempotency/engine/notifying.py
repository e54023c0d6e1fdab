"""Sends the events that our own threads detect: one bounded queue and one thread per process.

heartbeat ──┐
            ├─► queue ─► one thread ─► receivers: a slow one delays later events, but no lease or settle
deferring ──┘
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from ..core.concurrency import reset_in_children
from ..core.records import Ticket, shortened
from ..stores.base import BaseStore

logger = logging.getLogger("django_idempotency")

#: The longest queue. Any further events are logged as not sent.
LONGEST = 4096


def closing() -> None:
    """Close what receivers have opened in our thread. The app replaces this to close Django's connections."""


class Subject(Protocol):
    """The subject of an event: an operation."""

    store: BaseStore
    ticket: Ticket


class Notifier:
    """Sends events one at a time, in order of arrival. Thread safe."""

    def __init__(self) -> None:
        self.reset_after_fork()
        reset_in_children(self)

    def reset_after_fork(self) -> None:
        """Drop the queue: after a fork it is the parent's, and the thread does not exist."""
        self._waiting: deque[tuple[Subject, Callable[[], None]]] = deque()
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        #: Is the thread sending one?
        self._sending = False

    def notify(self, operation: Subject, send: Callable[[], None]) -> None:
        """Call `send` soon, in the thread, or in this one if none can be started. Never raises."""
        with self._lock:
            is_full = len(self._waiting) >= LONGEST
            is_queued = not is_full and self._runs()
            if is_queued:
                self._waiting.append((operation, send))
        if is_full:
            with suppress(Exception):  # raised by a log filter
                logger.error(
                    "An event of the key %s is not sent: %d others wait for a receiver that does not return.",
                    shortened(operation.ticket.key),
                    LONGEST,
                )
        elif not is_queued:
            sent(send)

    def drain(self, patience: float) -> None:
        """Wait until all are sent, up to `patience` seconds. Used at the end of a process."""
        deadline = time.monotonic() + patience
        with self._lock:
            while self._thread is not None and (self._waiting or self._sending):
                if (left := deadline - time.monotonic()) <= 0:
                    break
                self._changed.wait(left)
            count = len(self._waiting) + self._sending
        if count:
            logger.error(
                "The process ended before its receivers returned: %d events may not have been received.", count
            )

    # ------------------------------------------------------------------------------------------------------- thread

    def _runs(self) -> bool:
        """Start the thread unless it runs. Return whether it runs now."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="django-idempotency-notifying", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return False
            self._thread = thread
        return True

    def _run(self) -> None:
        try:
            while self._goes_on():
                self._send_all()
        finally:
            with self._lock:
                if self._thread is threading.current_thread():  # it was interrupted: the next event starts another
                    self._thread, self._sending = None, False
                self._changed.notify_all()

    def _goes_on(self) -> bool:
        """Are there events left? If not, the thread ends."""
        with self._lock:
            if not self._waiting:
                self._thread = None
            return self._thread is not None

    def _send_all(self) -> None:
        """Send all queued events. A broken connection or an open transaction that one leaves never affects the next."""
        while (event := self._next()) is not None:
            operation, send = event
            sent(send)
            for close in (operation.store.close, closing):
                with suppress(Exception):
                    close()

    def _next(self) -> tuple[Subject, Callable[[], None]] | None:
        with self._lock:
            self._sending = bool(self._waiting)
            if self._sending:
                return self._waiting.popleft()
            self._changed.notify_all()
            return None


def sent(send: Callable[[], None]) -> None:
    """Send one event. An observer's error is logged, and the thread continues with the others."""
    try:
        send()
    except BaseException:
        with suppress(Exception):
            logger.exception("An observer of a record's end raised.")


notifier = Notifier()
