"""Keeps the leases of running operations alive: one thread a process, one trip a store for all of them. Ring 2.

owner   |--- lease ---|
beat        |--- lease ---|            a third of the lease apart, so that two may fail
beat            |--- lease ---|
died                          .        nobody beats any more: the lease ends, another takes over
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

from ..concurrency.forking import begins_anew
from ..errors import LeaseLost
from .notifying import Subject, notifier, sent

logger = logging.getLogger("django_idempotency")

#: A lease is renewed whenever this part of it has passed.
PART = 3
#: Seconds without work after which the thread ends; the next operation starts another.
IDLE = 60.0


class Leased(Subject, Protocol):
    """What holds a lease: a running operation."""

    #: Why the record is no longer ours although the work still runs.
    lost: Exception | None
    #: Does its settle wait to be tried again in the background?
    deferred: bool

    def tell_lost(self) -> None:
        """Report that `lost` is set."""


class Lease(ref[Leased]):
    """An operation's lease. Weak: that of an operation which was abandoned without a settle ends by itself."""

    __slots__ = ("due", "ends")
    #: When it ends for certain, and when it is renewed next.
    ends: float
    due: float

    @property
    def early(self) -> float:
        """How much sooner it is renewed together with another of its store: a connection less, and a sixth of it."""
        return (self.ends - self.due) / 4

    def begin(self, now: float, seconds: float) -> None:
        self.ends = now + seconds
        self.due = now + seconds / PART


class Heartbeat:
    """Renews what it is told to watch, until it is told to forget it. Thread safe.

    `beat(now)` does the work, so that a test can call it with a later `now`; the thread only calls it in time.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.begin_anew()
        begins_anew(self)

    def begin_anew(self) -> None:
        """Watch nothing: after a fork the thread is not there, and what it watched belongs to the parent."""
        #: By the id of the operation: a WeakKeyDictionary takes a call three times as long (measured: 2 µs). To put in and
        #: to take out is one step, and needs no lock; so whoever goes through it goes through a copy.
        self._watched: dict[int, Lease] = {}
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        #: Until when the thread sleeps.
        self._wakes = 0.0

    def watch(self, operation: Leased) -> None:
        """Renew an operation's lease from now on.

        It takes no lock where the thread will see the lease in time: it is put in first and the thread is looked at after,
        while the thread says first that it is about to look (see _sleep()). So one of both sees the other.
        """
        lease, now, seconds = Lease(operation), self._clock(), operation.ticket.lease
        lease.ends, lease.due = now + seconds, now + seconds / PART  # begin(), whose call would cost a tenth of this
        if id(operation) in self._watched:  # an abandoned one's, whose memory this is: the thread may be taking it out
            with self._lock:
                self._watched[id(operation)] = lease
        else:
            self._watched[id(operation)] = lease
        if self._thread is None or lease.due < self._wakes:
            self._wake(lease)

    def _wake(self, lease: Lease) -> None:
        """Start the thread, or wake it where it would sleep for too long.

        To wake it for every call would cost each more than its claim: 60 µs (measured).
        """
        with self._lock:
            if self._thread is None:
                self._start()
            elif lease.due < self._wakes:
                self._wakes = lease.due
                self._changed.notify()

    def forget(self, operation: Leased) -> Lease | None:
        """Let an operation's lease be, and return it."""
        lease = self._watched.pop(id(operation), None)
        if lease is None:
            with self._lock:  # it was never watched; or has just been lost, and then it knows so when we return
                pass
        return lease

    def resume(self, lease: Lease) -> None:
        """Renew a lease again that was let be; it ends when it would have ended."""
        if (operation := lease()) is not None:
            with self._lock:
                self._watched[id(operation)] = lease
            if self._thread is None or lease.due < self._wakes:
                self._wake(lease)

    def lapsed(self, operation: Leased) -> bool:
        """Has an operation's lease ended although it is watched? The beat itself may hang."""
        with self._lock:
            lease = self._watched.get(id(operation))
        # Asked whose it is: an abandoned operation's id may be another's by now, which nobody watches.
        return lease is not None and lease() is operation and self._clock() >= lease.ends

    def beat(self, now: float) -> None:
        """Renew each lease that is due, and tell those operations that have lost theirs."""
        stores = defaultdict(list)
        for operation in self._due(now):
            stores[operation.store].append(operation)
        for store, operations in stores.items():
            try:
                with store.apart():
                    renewed = store.renew([operation.ticket for operation in operations])
            except Exception as error:  # the thread beats for others, too
                renewed = getattr(error, "renewed", set[UUID]())  # a store of many servers, one of which is away
                self._renewed([op for op in operations if op.ticket.owner in renewed], now)
                self._missed([op for op in operations if op.ticket.owner not in renewed], now, error)
                with suppress(Exception):  # a log filter's
                    logger.warning("A heartbeat was missed; it is tried again.", exc_info=error)
            else:
                self._renewed([op for op in operations if op.ticket.owner in renewed], now)
                for operation in operations:
                    if operation.ticket.owner not in renewed:
                        self._lost(operation, LeaseLost())

    def _due(self, now: float) -> list[Leased]:
        """Return what is to be renewed, and with it what the same stores are soon to renew; forget who was abandoned."""
        found, soon = [], []
        with self._lock:
            for name, lease in self._watched.copy().items():
                if lease.due <= now:
                    operation = lease()
                    if operation is not None:
                        found.append(operation)
                    elif self._watched.get(name) is lease:  # or it is another's by now
                        self._watched.pop(name, None)
                elif lease.due <= now + lease.early and (operation := lease()) is not None:
                    soon.append(operation)
        stores = {operation.store for operation in found}
        return [*found, *(operation for operation in soon if operation.store in stores)]

    def _renewed(self, operations: list[Leased], now: float) -> None:
        with self._lock:
            for operation in operations:
                if (lease := self._watched.get(id(operation))) is not None:
                    lease.begin(now, operation.ticket.lease)

    def _missed(self, operations: list[Leased], now: float, error: Exception) -> None:
        """Nobody answered. Try again soon, until a lease has surely ended."""
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
            # Not settled meanwhile. A settle that waits in the queue may have been written although nobody said so: it is
            # fenced, and the next try of it knows whose the record is.
            is_lost = watched is not None and not operation.deferred
            if is_lost:
                operation.lost = error
        if is_lost:
            self._tell(operation)

    def _tell(self, operation: Leased) -> None:
        """Report a lost lease; not from the thread that beats, since a receiver may be slow, and others' leases end."""
        if threading.current_thread() is self._thread:
            notifier.notify(operation, operation.tell_lost)
        else:
            sent(operation.tell_lost)

    # ------------------------------------------------------------------------------------------------------- thread

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="django-idempotency-heartbeat", daemon=True)
        thread.start()
        self._thread = thread

    def _run(self) -> None:
        try:
            while self._sleep():
                self.beat(self._clock())
        finally:
            with self._lock:
                if self._thread is threading.current_thread():  # it is cut short: the next operation starts another
                    self._thread = None

    def _sleep(self) -> bool:
        """Sleep until a lease may be due. `False`: there was nothing to do for so long that the thread ends.

        Who brings that nearer is mostly gone when we wake: we sleep on until then all the same, or the next would
        have to wake us again.
        """
        with self._lock:
            began = self._clock()
            self._wakes = inf  # who comes after our look waits for the lock
            self._wakes = min((lease.due for lease in self._watched.copy().values()), default=began + IDLE)
            while (left := self._wakes - self._clock()) > 0:
                self._changed.wait(left)
            if self._watched or self._wakes < began + IDLE:
                return True
            thread, self._thread = self._thread, None
            if self._watched:  # who came just now has seen us
                self._thread = thread
            return self._thread is not None


heartbeat = Heartbeat()
