"""How long a duplicate waits for running work, how many may wait, and how long a response waits for
its settle.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator

from ..core.concurrency import reset_in_children
from ..core.rules import Race, pause_after

#: Seconds between two checks of a busy record: first and longest. Each pause is 1.5 times the one
#: before.
PAUSE = 0.05
LONGEST_PAUSE = 0.5
#: Seconds between two tries of a call, and in total. With one more timeout of its store, this
#: delays a finished response by up to a second.
SETTLE_PAUSE = 0.1
SETTLE_PATIENCE = 0.6


def pauses(wait: float) -> Iterator[tuple[float, float]]:
    """Yield the pause before the next check and the rest of `wait`, until nothing is left."""
    deadline = time.monotonic() + wait
    pause = PAUSE
    while (left := deadline - time.monotonic()) > 0:
        yield min(pause, left), left
        pause = min(pause * 1.5, LONGEST_PAUSE)


class Races:
    """The races that one claim has lost."""

    def __init__(self) -> None:
        self._count = 0
        self._began = time.monotonic()

    def lost(self, race: Race) -> float | None:
        """Count a race that was lost.

        Return the seconds before the next claim; `None`: there is none.
        """
        self._count += 1
        spent = time.monotonic() - self._began
        draw = random.random()  # noqa: S311 - no secret
        return pause_after(race, tries=self._count, spent=spent, draw=draw)


class WaitSlots:
    """The threads in this process that wait for other work.

    Without a lock, which an interrupt could leave locked: at worst two that come at one moment both
    get the last slot.
    """

    def __init__(self) -> None:
        self.reset_after_fork()
        reset_in_children(self)

    def reset_after_fork(self) -> None:
        """Forget those that wait: after a fork the parent's threads do not exist."""
        self._waiting: set[int] = set()

    @property
    def count(self) -> int:
        return len(self._waiting)

    def most(self) -> int:
        """Return how many may wait: a quarter of the threads that are alive, and always one.

        Servers start their threads on demand, so a process with room for many may have only two
        when the duplicate comes.
        """
        return max(1, threading.active_count() // 4)

    def enter(self) -> bool:
        """Return whether this thread, too, may wait. leave() must follow."""
        admitted = self.count < self.most()
        if admitted:
            self._waiting.add(threading.get_ident())
        return admitted

    def leave(self) -> None:
        """Note that this thread waits no longer. May be called any number of times."""
        self._waiting.discard(threading.get_ident())


wait_slots = WaitSlots()


def may_retry(began: float) -> bool:
    """Is there time for a pause and another try before the response goes out?

    `began`: the first try, monotonic.
    """
    return time.monotonic() - began + SETTLE_PAUSE <= SETTLE_PATIENCE
