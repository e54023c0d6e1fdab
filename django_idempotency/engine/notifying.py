"""Sends the events that our own threads detect: one bounded queue and one thread per process.

heartbeat ──┐
            ├─► queue ─► one thread ─► receivers: a slow one delays later events, but no lease or settle
deferring ──┘
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from ..core.concurrency import holding
from ..core.records import Ticket, shortened
from ..stores.base import BaseStore
from .background import Background

logger = logging.getLogger("django_idempotency")

#: The longest queue. Any further events are logged as not sent.
LONGEST = 4096


def closing() -> None:
    """Close what receivers have opened in our thread.

    The app replaces this to close Django's connections.
    """


class Subject(Protocol):
    """The subject of an event: an operation."""

    store: BaseStore
    ticket: Ticket


class Notifier(Background):
    """Sends events one at a time, in order of arrival. Thread safe."""

    name = "django-idempotency-notifying"

    def reset_after_fork(self) -> None:
        """Drop the queue: after a fork it is the parent's, and the thread does not exist."""
        self._waiting: deque[tuple[Subject, Callable[[], None]]] = deque()
        #: Is the thread sending one?
        self._sending = False
        super().reset_after_fork()

    def notify(self, operation: Subject, send: Callable[[], None]) -> None:
        """Call `send` soon, in the thread, or in this one if none can be started. Never raises."""
        is_full, is_queued = holding(self._lock, self._queued, operation, send)
        if is_full:
            with suppress(Exception):  # raised by a log filter
                logger.error(
                    "An event of the key %s is not sent: %d others wait for a receiver "
                    "that does not return.",
                    shortened(operation.ticket.key),
                    LONGEST,
                )
        elif not is_queued:
            sent(send)

    def _queued(self, operation: Subject, send: Callable[[], None]) -> tuple[bool, bool]:
        """Queue an event.

        Return whether the queue was full, and whether it is queued. Called with the lock.
        """
        is_full = len(self._waiting) >= LONGEST
        is_queued = not is_full and self._runs()
        if is_queued:
            self._waiting.append((operation, send))
        return is_full, is_queued

    def drain(self, patience: float) -> None:
        """Wait until all are sent, up to `patience` seconds. Used at the end of a process."""
        deadline = time.monotonic() + patience
        with self._lock:
            while self._thread is not None and (self._waiting or self._sending):
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            count = len(self._waiting) + self._sending
        if count:
            logger.error(
                "The process ended before its receivers returned: %d events may not have "
                "been received.",
                count,
            )

    # --------------------------------------------------------------------------------------- thread

    def _runs(self) -> bool:
        """Start the thread unless it runs. Return whether it runs now."""
        try:
            self._start()
        except RuntimeError:
            return False
        return True

    def _pause(self) -> bool:
        with self._lock:
            return bool(self._waiting) or self._end()

    def _work(self) -> None:
        """Send all queued events.

        A broken connection or an open transaction that one leaves never affects the next.
        """
        try:
            while (event := self._next()) is not None:
                operation, send = event
                sent(send)
                for close in (operation.store.close, closing):
                    with suppress(Exception):
                        close()
        finally:
            self._sending = False

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
