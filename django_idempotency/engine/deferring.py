"""Retries failed settles while their lease lasts: one bounded queue and one thread per process.

owner   |--- lease ---|--- renewed where it can be ---|
work    ───────┤ the settle fails: the response goes out
here             x x x x x ok    the store is back: a retry gets the replay
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections import defaultdict, deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from ..core.concurrency import holding
from ..errors import StoreUnavailable
from .background import Background
from .notifying import notifier
from .settling import SettleResult, Settling

if TYPE_CHECKING:
    from ..stores.base import BaseStore

logger = logging.getLogger("django_idempotency")

#: The most settles that may wait, and bytes of their responses. Any more are lost at once, as
#: without a queue.
LONGEST = 1024
HEAVIEST = 64 * 1024 * 1024
#: Seconds between two rounds.
PAUSE = 0.5
#: Seconds that the end of the process waits for the queue; also the least time for receivers of the
#: last events.
DRAIN = 5.0
NOTICE = 1.0


class Deferring(Background):
    """Retries the queued settles, round after round. Thread safe.

    `attempt(now)` is one round, so that a test can call it with a later `now`; the thread only
    calls it on time.
    """

    name = "django-idempotency-settling"

    def reset_after_fork(self) -> None:
        """Empty the queue: after a fork it is the parent's, and the thread does not exist."""
        self._waiting: deque[Settling] = deque()
        self._weight = 0
        #: The number of settles taken out whose event has not yet reached the notifier.
        self._ending = 0
        super().reset_after_fork()

    def add(self, settling: Settling) -> bool:
        """Queue this settle, and keep its lease in the meantime.

        `False`: there is no room, or no thread.
        """
        try:
            return holding(self._lock, self._add, settling)
        except BaseException:
            settling.operation.deferred = False
            raise

    def _add(self, settling: Settling) -> bool:
        if len(self._waiting) >= LONGEST or self._weight + settling.weight > HEAVIEST:
            return False
        try:
            self._start()
        except RuntimeError:
            return False
        settling.operation.deferred = True  # before the thread can find it, and settle it
        settling.operation.keep_lease()
        self._waiting.append(settling)
        self._weight += settling.weight
        return True

    def attempt(self, now: float) -> None:
        """Try each queued settle.

        If a store does not respond to one, its other settles are not tried.
        """
        stores: defaultdict[BaseStore, list[Settling]] = defaultdict(list)
        with self._lock:
            waiting = list(self._waiting)
        for settling in waiting:
            stores[settling.operation.store].append(settling)
        for store, settlings in stores.items():
            # Apart() is retried until the leases have ended.
            with (
                suppress(Exception),
                store.apart(),
            ):
                for settling in settlings:
                    if not self._tried(settling):
                        break
        for settling in waiting:
            if settling.is_over(now):
                self._give_up(settling)

    def _tried(self, settling: Settling) -> bool:
        """Try once. Return whether the store responded."""
        operation = settling.operation
        operation.leave_lease()  # a beat would find the settled record and report it as lost
        try:
            result = settling.attempt()
        except Exception as error:  # noqa: BLE001 - retried, and part of the event if it is given up
            operation.keep_lease()
            settling.error = error
            with self._lock, suppress(ValueError):  # drained in the meantime
                self._waiting.remove(settling)
                self._waiting.append(settling)  # behind those that may succeed
            return not isinstance(error, StoreUnavailable)
        if self._taken_out(settling):
            self._notify(settling, result)
        return True

    def _give_up(self, settling: Settling) -> None:
        if self._taken_out(settling):
            settling.operation.leave_lease()
            self._notify(settling, settling.given_up())

    def _taken_out(self, settling: Settling) -> bool:
        """Remove a settle. Return whether it was there."""
        with self._lock:
            if settling not in self._waiting:
                return False
            self._waiting.remove(settling)
            self._weight -= settling.weight
            self._ending += 1
            settling.operation.deferred = False
            return True

    def _notify(self, settling: Settling, result: SettleResult) -> None:
        """Report how it ended; not in this thread, since a slow receiver would delay the others."""
        send = partial(settling.operation.notify_settled, result)
        try:
            if threading.current_thread() is self._thread:
                notifier.notify(settling.operation, send)
            else:
                send()
        finally:
            with self._lock:
                self._ending -= 1
                self._changed.notify_all()

    def drain(self, patience: float = DRAIN) -> None:
        """Wait until all are written and reported, up to `patience`; give up the rest.

        Used at the end of a process.
        """
        deadline = time.monotonic() + patience
        with self._lock:
            self._changed.notify_all()
            while (self._ending or (self._waiting and self._thread is not None)) and (
                left := deadline - time.monotonic()
            ) > 0:
                self._changed.wait(left)
            rest = list(self._waiting)
        for settling in rest:
            self._give_up(settling)
        notifier.drain(max(deadline - time.monotonic(), NOTICE))

    # --------------------------------------------------------------------------------------- thread

    def _work(self) -> None:
        self.attempt(time.monotonic())

    def _pause(self) -> bool:
        """Pause before the next round. `False`: the queue is empty, and the thread ends."""
        with self._lock:
            if self._waiting:
                self._changed.wait(PAUSE)
            return bool(self._waiting) or self._end()


deferring = Deferring()
atexit.register(deferring.drain)
