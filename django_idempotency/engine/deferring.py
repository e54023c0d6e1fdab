"""Writes what a settle could not, as long as the lease lasts: one bounded queue and one thread per process. Ring 2.

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
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from ..concurrency.forking import begins_anew
from ..errors import StoreUnavailable
from .notifying import notifier
from .settling import News, Settling

if TYPE_CHECKING:
    from ..stores.base import BaseStore

logger = logging.getLogger("django_idempotency")

#: Settles that wait, and bytes of responses with them. One more is lost at once, as if there were no queue.
LONGEST, HEAVIEST = 1024, 64 * 1024 * 1024
#: Seconds between two rounds.
PAUSE = 0.5
#: Seconds that the end of the process waits for what is still in the queue, and at least for receivers of what has ended.
DRAIN, NOTICE = 5.0, 1.0


class Deferring:
    """Tries the settles that wait, round after round. Thread safe.

    `attempt(now)` is one round, so that a test can call it with a later `now`; the thread only calls it on time.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.begin_anew()
        begins_anew(self)

    def begin_anew(self) -> None:
        """Wait for nothing: after a fork what waited is the parent's, and its thread is not there."""
        self._waiting: deque[Settling] = deque()
        self._weight = 0
        #: How many have been taken out whose event the notifier does not have yet.
        self._ending = 0
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None

    def add(self, settling: Settling) -> bool:
        """Try this settle from now on, and keep its lease meanwhile. `False`: there is no room, or no thread."""
        with self._lock:
            if len(self._waiting) >= LONGEST or self._weight + settling.weight > HEAVIEST:
                return False
            if self._thread is None:
                try:
                    self._start()
                except RuntimeError:
                    return False
            self._waiting.append(settling)
            self._weight += settling.weight
        settling.operation.deferred = True
        settling.operation.keep_lease()
        return True

    def attempt(self, now: float) -> None:
        """Try each settle that waits. A store that does not answer one is not asked for the others."""
        stores: defaultdict[BaseStore, list[Settling]] = defaultdict(list)
        with self._lock:
            waiting = list(self._waiting)
        for settling in waiting:
            stores[settling.operation.store].append(settling)
        for store, settlings in stores.items():
            with suppress(Exception), store.apart():  # apart() is tried again, until the leases have ended
                for settling in settlings:
                    if not self._tried(settling):
                        break
        for settling in waiting:
            if settling.is_over(now):
                self._give_up(settling)

    def _tried(self, settling: Settling) -> bool:
        """Try once. Say whether the store has answered."""
        operation = settling.operation
        operation.leave_lease()  # a beat would take what we have just settled for lost
        try:
            settled = settling.write()
        except Exception as error:  # noqa: BLE001 - tried again, and part of the event if it is given up
            operation.keep_lease()
            settling.error = error
            with self._lock, suppress(ValueError):  # drained meanwhile
                self._waiting.remove(settling)
                self._waiting.append(settling)  # behind those that may be written
            return not isinstance(error, StoreUnavailable)
        if self._taken_out(settling):
            self._notify(settling, settling.written(settled))
        return True

    def _give_up(self, settling: Settling) -> None:
        if self._taken_out(settling):
            settling.operation.leave_lease()
            self._notify(settling, settling.given_up())

    def _taken_out(self, settling: Settling) -> bool:
        """Take a settle out. Say whether it was there."""
        with self._lock:
            if settling not in self._waiting:
                return False
            self._waiting.remove(settling)
            self._weight -= settling.weight
            self._ending += 1
            settling.operation.deferred = False
            return True

    def _notify(self, settling: Settling, news: News) -> None:
        """Report how it ended; not from the thread that tries the others, since a receiver may be slow."""
        send = partial(settling.operation.tell, news)
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
        """Wait until all are written and reported, up to `patience`; give up what is left. For the end of a process."""
        deadline = self._clock() + patience
        with self._lock:
            self._changed.notify_all()
            while (self._ending or (self._waiting and self._thread is not None)) and (
                left := deadline - self._clock()
            ) > 0:
                self._changed.wait(left)
            rest = list(self._waiting)
        for settling in rest:
            self._give_up(settling)
        notifier.drain(max(deadline - self._clock(), NOTICE))

    # ------------------------------------------------------------------------------------------------------- thread

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="django-idempotency-settling", daemon=True)
        thread.start()
        self._thread = thread

    def _run(self) -> None:
        try:
            while self._pause():
                self.attempt(self._clock())
        finally:
            with self._lock:
                if self._thread is threading.current_thread():  # it is cut short: the next settle starts another
                    self._thread = None

    def _pause(self) -> bool:
        """Let the store come back. `False`: nothing waits, and the thread ends."""
        with self._lock:
            if self._waiting:
                self._changed.wait(PAUSE)
            if not self._waiting:
                self._thread = None
            return self._thread is not None


deferring = Deferring()
atexit.register(deferring.drain)
