"""How fast a process sends to a host that throttles, as the adaptive mode of AWS's SDKs:
`Terms(adaptive=True)`.

Requests stand in a row, and each has its turn at the rate of the host: a token bucket for one
token. The rate is cut when the host throttles, and grows evenly in time (AIMD); both count for
those that stand there, too. Until a host throttles for the first time it has no limit, and after an
hour without throttling as good as none.

Each process finds its own part of what the host takes. A call that ends while it stands in the row
gives its place up.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from functools import lru_cache

from ...core.concurrency import new_lock
from ...errors import DeadlinePassed

#: The responses of a host that is asked too often, with or without Retry-After.
THROTTLED = frozenset({429, 503})
#: Of a rate that was too much: what is kept, and what is added each second.
KEPT = 0.7
REGAINED = 0.05
#: The slowest rate (requests a second), and the least that is added to one each second.
SLOWEST = 0.5
LEAST = 0.1
#: Over how long the own rate is measured, and how long after a cut what was sent before it may be
#: throttled (seconds).
MEASURED = 2.0
SETTLES = 1.0
#: How long nobody in the row sleeps without looking again (seconds): the rate changes.
LOOKS = 1.0
#: Hosts that are remembered, here and by the retry budgets. A process that calls more forgets the
#: one called the longest ago.
MOST_HOSTS = 1000


class Pace:
    """The rate of one host. Thread safe, and it waits for nobody: `now` is in seconds, of one
    clock.
    """

    def __init__(self) -> None:
        #: Requests a second, and by how much that grows in a second.
        self._rate = math.inf
        self._growth = 0.0
        #: How many turns have come until `_at`, a fraction of the next included; and whose is the
        #: last in the row.
        self._turns = self._last = self._at = 0.0
        #: The places in the row that were left.
        self._gone: list[float] = []
        #: How many were sent; a request counts less the longer ago it is.
        self._sent = 0.0
        self._cut_at = -math.inf
        self._lock = new_lock()

    def stand(self, now: float, most: float) -> float | None:
        """Return a place in the row; `None`: its turn is not within `most` seconds, at the rate of
        now.
        """
        with self._lock:
            self._advance(now)
            place = max(self._last + 1, self._turns) if self._growth else self._turns
            if self._until(place) >= most:
                return None
            self._last = place
            self._sent = self._sent + 1
            return place

    def look(self, place: float, now: float, most: float) -> float | None:
        """Return in how many seconds it is a place's turn, at the rate of now; 0: send.

        `None`: too late, as above.
        """
        with self._lock:
            self._advance(now)
            return None if (wait := self._until(place)) >= most else wait

    def leave(self, place: float) -> None:
        """Give a place up. Those behind it move up."""
        with self._lock:
            insort(self._gone, place)
            self._sent = max(0.0, self._sent - 1)

    def throttled(self, now: float) -> None:
        """Note that the host has throttled. What was sent together counts once."""
        with self._lock:
            self._advance(now)
            if now - self._cut_at >= SETTLES:
                too_much = min(self._rate, self._sent / MEASURED)
                self._rate = max(SLOWEST, too_much * KEPT)
                self._growth = max(LEAST, too_much * REGAINED)
                self._cut_at = now

    def _until(self, place: float) -> float:
        return max(0.0, place - self._turns - bisect_left(self._gone, place)) / self._rate

    def _advance(self, now: float) -> None:
        passed = max(0.0, now - self._at)
        self._at = max(now, self._at)
        self._sent *= math.exp(-passed / MEASURED)
        if self._growth:
            self._turns += (self._rate + self._growth * passed / 2) * passed
            self._rate += self._growth * passed
        while self._gone and self._gone[0] <= self._turns:
            del self._gone[0]
            self._turns += 1


class Turns:
    """The turns of one call's attempts. `left` is how much time the call has (seconds). Without a
    pace it is always its turn.
    """

    def __init__(self, pace: Pace | None) -> None:
        self._pace = pace
        self._place: float | None = None

    def comes(self, now: float, left: float) -> bool:
        """Let the next attempt stand in the row, unless it does.

        Return whether its turn comes in time.
        """
        if self._pace is not None and self._place is None:
            self._place = self._pace.stand(now, left)
        return self._pace is None or self._place is not None

    def wait(self, now: float, left: float) -> float:
        """Return for how long to wait before asking again; 0: send.

        Raises `DeadlinePassed` if that is too long.
        """
        if self._pace is None:
            return 0.0
        if self._place is None:
            self._place = self._pace.stand(now, left)
        wait = None if self._place is None else self._pace.look(self._place, now, left)
        if wait is None:
            self.leave()
            raise DeadlinePassed(
                "Its host throttles, and the turn of this attempt comes after the "
                "deadline: the attempt was not sent."
            )
        if not wait:
            self._place = None
        return min(wait, LOOKS)

    def leave(self) -> None:
        """Give the place of an attempt up that is not sent."""
        if self._pace is not None and self._place is not None:
            self._pace.leave(self._place)
            self._place = None

    def heard(self, status: int, now: float) -> None:
        """Note a response."""
        if self._pace is not None and status in THROTTLED:
            self._pace.throttled(now)


@lru_cache(maxsize=MOST_HOSTS)
def pace_of(host: str) -> Pace:  # noqa: ARG001 - the key of the cache
    """Return this process's pace of a host.

    Two threads that are the first to call it may begin with one each.
    """
    return Pace()
