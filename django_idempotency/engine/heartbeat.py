"""Renews the leases of running operations: one thread per process, one trip per store for all of
them.

owner   |--- lease ---|
beat        |--- lease ---|            a third of the lease apart, so that two may fail
beat            |--- lease ---|
died                          .        no more beats: the lease ends, another takes over
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Protocol
from uuid import UUID
from weakref import ref

from ..core.concurrency import holding, nothing
from ..errors import LeaseLost
from .background import Background
from .notifying import Subject, notifier, sent

logger = logging.getLogger("django_idempotency")

#: A lease is renewed each time this fraction of it has passed.
PART = 3
#: Seconds without work after which the thread ends; the next operation starts another.
IDLE = 60.0
#: Why a lease was lost that has not been renewed.
OVERRUN = (
    "The work ran for longer than LongestRun says, so its lease was not renewed: another may be "
    "running it by now."
)


class Leased(Subject, Protocol):
    """The holder of a lease: a running operation."""

    #: Why the record is no longer ours although the work still runs.
    lost: Exception | None
    #: Is its settle waiting to be retried in the background?
    deferred: bool

    def notify_lost(self) -> None:
        """Report that `lost` is set."""


class Lease(ref[Leased]):
    """An operation's lease, held weakly: if the operation is abandoned without a settle, the lease
    simply ends.
    """

    __slots__ = ("due", "ends", "until")
    #: When it has certainly ended, when it is next renewed, and after when it is not renewed.
    ends: float
    due: float
    until: float

    @property
    def early(self) -> float:
        """How early it may be renewed along with another of its store, to save a connection: a
        sixth of the lease.
        """
        return (self.ends - self.due) / 4

    def begin(self, now: float, seconds: float, until: float = inf) -> None:
        self.ends = now + seconds
        self.due = now + seconds / PART
        self.until = until


class Heartbeat(Background):
    """Renews the leases of watched operations until forget(). Thread safe.

    `beat(now)` does the work, so that a test can call it with a later `now`; the thread only calls
    it on time.
    """

    name = "django-idempotency-heartbeat"

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        super().__init__()

    def reset_after_fork(self) -> None:
        """Watch nothing: after a fork the thread does not exist, and the watched operations are the
        parent's.
        """
        #: Keyed by the operation's id: a WeakKeyDictionary makes a call three times as slow
        #: (measured: 2 µs). Adding and removing are atomic without a lock, so iterate over a copy.
        self._watched: dict[int, Lease] = {}
        #: When the thread wakes.
        self._wakes = 0.0
        super().reset_after_fork()

    def watch(self, operation: Leased) -> None:
        """Renew an operation's lease from now on.

        Takes no lock if the thread will see the lease in time: this adds the lease before it checks
        the thread, and the thread announces its check before it looks (see _pause()). So at least
        one of the two sees the other.
        """
        lease = Lease(operation)
        now = self._clock()
        seconds = operation.ticket.lease
        lease.begin(now, seconds, now + operation.ticket.longest_run)
        # An abandoned one's with the same id, which the thread may be removing.
        if id(operation) in self._watched:
            holding(self._lock, self._watched.__setitem__, id(operation), lease)
        else:
            self._watched[id(operation)] = lease
        if self._thread is None or lease.due < self._wakes:
            holding(self._lock, self._wake, lease)

    def _wake(self, lease: Lease) -> None:
        """Start the thread, or wake it if it would sleep too long. Called with the lock.

        Waking it for every call would cost more than the claim: 60 µs (measured).
        """
        if self._thread is None:
            self._start()
        elif lease.due < self._wakes:
            self._wakes = lease.due
            self._changed.notify()

    def forget(self, operation: Leased) -> Lease | None:
        """Stop renewing an operation's lease, and return the lease."""
        lease = self._watched.pop(id(operation), None)
        if lease is None:
            # Never watched, or just lost: the operation knows when we return.
            holding(self._lock, nothing)
        return lease

    def resume(self, lease: Lease) -> None:
        """Watch a forgotten lease again, whose work is over and whose settle waits; its end is
        unchanged.
        """
        operation = lease()
        if operation is not None:
            lease.due = min(lease.due, lease.ends - operation.ticket.lease / PART)
            lease.until = inf
            holding(self._lock, self._watched.__setitem__, id(operation), lease)
            if self._thread is None or lease.due < self._wakes:
                holding(self._lock, self._wake, lease)

    def lapsed(self, operation: Leased) -> bool:
        """Has an operation's lease ended while it is watched? The beat itself may hang."""
        lease = holding(self._lock, self._watched.get, id(operation))
        # Check the owner: the id of an abandoned operation may now belong to another one, which is
        # not watched.
        return lease is not None and lease() is operation and self._clock() >= lease.ends

    def beat(self, now: float) -> None:
        """Renew each lease that is due, and notify the operations that have lost theirs."""
        stores = defaultdict(list)
        for operation in self._due(now):
            stores[operation.store].append(operation)
        for store, operations in stores.items():
            missed: Exception | None = None
            try:
                with store.apart():
                    renewed = store.renew([operation.ticket for operation in operations])
            except Exception as error:  # noqa: BLE001 - the thread also serves other stores
                missed = error
                # A store with many servers, one of which is down.
                renewed = getattr(error, "renewed", set[UUID]())
            self._renewed([op for op in operations if op.ticket.owner in renewed], now)
            others = [op for op in operations if op.ticket.owner not in renewed]
            if missed is not None:
                self._missed(others, now, missed)
                with suppress(Exception):  # raised by a log filter
                    logger.warning("A heartbeat was missed; it will be retried.", exc_info=missed)
            else:
                for operation in others:
                    self._lost(operation, LeaseLost())

    def _due(self, now: float) -> list[Leased]:
        """Return the leases to renew, including nearly due ones of the same stores; forget
        abandoned and stuck ones.
        """
        found = list[Leased]()
        soon = list[Leased]()
        stuck = list[Leased]()
        with self._lock:
            for name, lease in self._watched.copy().items():
                if lease.due <= now:
                    operation = lease()
                    if operation is None:
                        if self._watched.get(name) is lease:  # or another operation has it by now
                            self._watched.pop(name, None)
                    elif now < lease.until:
                        found.append(operation)
                    elif now < lease.ends:
                        lease.due = lease.ends  # no other takes over before
                    else:
                        stuck.append(operation)
                elif (
                    lease.due <= min(now + lease.early, lease.until)
                    and (operation := lease()) is not None
                ):
                    soon.append(operation)
        for operation in stuck:
            self._lost(operation, LeaseLost(OVERRUN))
        stores = {operation.store for operation in found}
        return [*found, *(operation for operation in soon if operation.store in stores)]

    def _renewed(self, operations: list[Leased], now: float) -> None:
        with self._lock:
            for operation in operations:
                lease = self._watched.get(id(operation))
                if lease is not None:
                    lease.begin(now, operation.ticket.lease, lease.until)

    def _missed(self, operations: list[Leased], now: float, error: Exception) -> None:
        """Handle a failed renewal: retry soon, until a lease has certainly ended."""
        for operation in operations:
            with self._lock:
                lease = self._watched.get(id(operation))
                if lease is not None:
                    lease.due = now + operation.ticket.lease / PART / PART
            if lease is not None and now >= lease.ends:
                self._lost(operation, error)

    def _lost(self, operation: Leased, error: Exception) -> None:
        with self._lock:
            watched = self._watched.pop(id(operation), None)
            # It was not settled in the meantime. A queued settle may have been written without a
            # response: it is fenced, and its next try finds out who owns the record.
            is_lost = watched is not None and not operation.deferred
            if is_lost:
                operation.lost = error
        if is_lost:
            self._notify(operation)

    def _notify(self, operation: Leased) -> None:
        """Report a lost lease; not in this thread, since a slow receiver would let other leases
        end.
        """
        if threading.current_thread() is self._thread:
            notifier.notify(operation, operation.notify_lost)
        else:
            sent(operation.notify_lost)

    # --------------------------------------------------------------------------------------- thread

    def _work(self) -> None:
        self.beat(self._clock())

    def _pause(self) -> bool:
        """Sleep until a lease may be due.

        `False`: there was nothing to do for so long that the thread ends.

        An operation that shortened our sleep has usually finished when we wake. Keep the earlier
        deadline anyway, so that the next one need not wake us again.
        """
        with self._lock:
            began = self._clock()
            self._wakes = inf  # an operation that comes after this check waits for the lock
            self._wakes = min(
                (lease.due for lease in self._watched.copy().values()), default=began + IDLE
            )
            while (left := self._wakes - self._clock()) > 0:
                self._changed.wait(left)
            if self._watched or self._wakes < began + IDLE:
                return True
            thread = self._thread
            self._thread = None
            if self._watched:  # an operation added just before this check has seen it
                self._thread = thread
            return self._thread is not None


heartbeat = Heartbeat()
