"""Keeps the leases of running operations alive: one thread a process, one trip a store for all of them. Ring 2.

owner   |--- lease ---|
beat        |--- lease ---|            a third of the lease apart, so that two may fail
beat            |--- lease ---|
died                          .        nobody beats any more: the lease ends, another takes over
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from .errors import LeaseLost

if TYPE_CHECKING:
    from .engine import Operation

logger = logging.getLogger("django_idempotency")

#: A lease is renewed whenever this part of it has passed.
PART = 3
#: Seconds without work after which the thread ends; the next operation starts another.
IDLE = 60.0


@dataclass(frozen=True, slots=True)
class _Lease:
    """When a lease ends for certain, and when it is renewed next."""

    ends: float
    due: float

    @classmethod
    def begun(cls, operation: Operation, now: float) -> _Lease:
        lease = operation.ticket.lease
        return cls(ends=now + lease, due=now + lease / PART)


class Heartbeat:
    """Renews what it is told to watch, until it is told to forget it. Thread safe.

    `beat(now)` does the work, so that a test can call it with a later `now`; the thread only calls it in time.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Weak: the lease of an operation that was abandoned without a settle ends by itself.
        self._watched: WeakKeyDictionary[Operation, _Lease] = WeakKeyDictionary()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        os.register_at_fork(after_in_child=self._begin_anew)

    def watch(self, operation: Operation) -> None:
        """Renew an operation's lease from now on."""
        with self._changed:
            self._watched[operation] = _Lease.begun(operation, self._clock())
            if self._thread is None or not self._thread.is_alive():
                self._start()
            self._changed.notify()

    def forget(self, operation: Operation) -> None:
        """Let an operation's lease be."""
        with self._changed:
            self._watched.pop(operation, None)

    def lapsed(self, operation: Operation) -> bool:
        """Has an operation's lease ended although it is watched? The beat itself may hang."""
        with self._changed:
            lease = self._watched.get(operation)
        return lease is not None and self._clock() >= lease.ends

    def beat(self, now: float) -> None:
        """Renew each lease that is due, and tell those operations that have lost theirs."""
        with self._changed:
            due = [operation for operation, lease in self._watched.items() if lease.due <= now]
        stores = defaultdict(list)
        for operation in due:
            stores[operation.store].append(operation)
        for store, operations in stores.items():
            try:
                renewed = store.renew([operation.ticket for operation in operations])
            except Exception as error:  # the thread beats for others, too
                logger.warning("A heartbeat was missed; it is tried again.", exc_info=error)
                self._missed(operations, now, error)
            else:
                self._renewed([op for op in operations if op.ticket.owner in renewed], now)
                for operation in operations:
                    if operation.ticket.owner not in renewed:
                        self._lost(operation, LeaseLost())
        for store in stores:
            with suppress(Exception):
                store.close()

    def _renewed(self, operations: list[Operation], now: float) -> None:
        with self._changed:
            for operation in operations:
                if operation in self._watched:
                    self._watched[operation] = _Lease.begun(operation, now)

    def _missed(self, operations: list[Operation], now: float, error: Exception) -> None:
        """Nobody answered. Try again soon, until a lease has surely ended."""
        for operation in operations:
            with self._changed:
                lease = self._watched.get(operation)
                if lease is not None:
                    self._watched[operation] = replace(lease, due=now + operation.ticket.lease / PART / PART)
            if lease is not None and now >= lease.ends:
                self._lost(operation, error)

    def _lost(self, operation: Operation, error: Exception) -> None:
        with self._changed:
            watched = self._watched.pop(operation, None)
            if watched is not None:  # not settled meanwhile
                operation.lost = error
        if watched is not None:
            try:
                operation.tell_lost()
            except BaseException:  # the thread beats for others, too
                logger.exception("Whoever was told of a lost lease raised.")

    # ------------------------------------------------------------------------------------------------------- thread

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="django-idempotency-heartbeat", daemon=True)
        thread.start()
        self._thread = thread

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: len(self._watched), timeout=IDLE):
                    self._thread = None
                    return
                soonest = min((lease.due for lease in self._watched.values()), default=0.0)
                wait = soonest - self._clock()
                if wait > 0 and self._changed.wait(wait):
                    continue  # another operation, perhaps with a shorter lease
            self.beat(self._clock())

    def _begin_anew(self) -> None:
        """After a fork the thread is not there, and what it watched belongs to the parent."""
        self._watched = WeakKeyDictionary()
        self._changed = threading.Condition()
        self._thread = None


heartbeat = Heartbeat()
