"""How long a duplicate waits for the work that is under way, and how many may. Ring 2."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ..concurrency.forking import begins_anew

#: Seconds between two looks at a busy record: at first, and at most. Each is half as long again as the one before.
PAUSE, LONGEST_PAUSE = 0.05, 0.5


def pauses(wait: float) -> Iterator[tuple[float, float]]:
    """Yield how long to pause before the next look, and what is left of `wait`, until nothing is."""
    deadline, pause = time.monotonic() + wait, PAUSE
    while (left := deadline - time.monotonic()) > 0:
        yield min(pause, left), left
        pause = min(pause * 1.5, LONGEST_PAUSE)


class Waiters:
    """How many threads of this process wait for others' work."""

    def __init__(self) -> None:
        self.begin_anew()
        begins_anew(self)

    def begin_anew(self) -> None:
        """Count from nothing: the parent's threads are not there."""
        self.count = 0
        self._lock = threading.Lock()

    @contextmanager
    def one_more(self, *, least: int = 0) -> Iterator[bool]:
        """Say whether one thread more may wait. Those who work must not be starved by those who wait for them."""
        with self._lock:
            admitted = self.count < max(least, threading.active_count() // 4)
            self.count += admitted
        try:
            yield admitted
        finally:
            with self._lock:
                self.count -= admitted


waiting = Waiters()
