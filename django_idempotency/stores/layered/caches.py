"""Caches in front of a store: copies of records, each kept for a while. Losing one costs a trip."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, runtime_checkable
from uuid import UUID

from ...core import rules
from ...core.records import MISSING, Record, Status
from ...errors import StoreRefused

logger = logging.getLogger("django_idempotency")

#: Seconds for which a failed front is not used; then one call tries it again.
PAUSE = 5.0
#: Seconds between two warnings that a front does not respond.
WARN_EVERY = 60.0


#: The longest body that a local front keeps (bytes): so 256 records are 16 MiB per process at most.
LONGEST = 64 * 1024


@runtime_checkable
class RecordCache(Protocol):
    """Keeps copies, in one trip per verb. It decides nothing, and may forget at any time. Verbs may
    raise.

    A cache that is local to this process may set `local = True`. It then gets no records of work in
    progress, because other processes would not see them.
    """

    def peek(self, record_id: UUID) -> Record | None:
        """Return the copy, with `read_at` as it is now; `None` when there is none."""

    def put(self, record: Record, *, seconds: float) -> None:
        """Keep a copy for at most `seconds`, in place of an earlier one."""

    def drop(self, record_id: UUID) -> None:
        """Forget the copy, if there is one."""


@dataclass(frozen=True, slots=True)
class _Entry:
    record: Record
    #: The host's monotonic time at `record.read_at`, and how long the copy is valid.
    at: float
    seconds: float


class LocalCache:
    """Finished records in this process, the `size` most recently used, for `seconds` each. Thread
    safe.

    It never holds a record in progress. Releases by other processes are not seen until `seconds`
    have passed, and neither is that the authority has lost a record in a failover: a copy is not
    asked of it. Its clock is monotonic: setting the system time does not change a copy's life.
    Raises `ValueError` for a `size` below 1.
    """

    #: Do its verbs touch this process's memory only?
    local = True

    def __init__(
        self, size: int = 256, seconds: float = 60.0, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if size < 1:
            raise ValueError(f"A local cache of {size} records: make it 1 or more.")
        self._size = size
        self._seconds = seconds
        self._clock = clock
        #: By the integer of the id. Each operation on it is one step, and what two threads do
        #: between them costs a copy at most: so there is no lock that an interrupt could leave.
        self._entries: OrderedDict[int, _Entry] = OrderedDict()

    def peek(self, record_id: UUID) -> Record | None:
        entry = self._entries.get(record_id.int)
        if entry is None:
            return None
        age = self._clock() - entry.at
        record = entry.record._replace(read_at=entry.record.read_at + timedelta(seconds=age))
        if age >= entry.seconds or rules.expired(record):
            self.drop(record_id)
            return None
        with suppress(KeyError):  # another thread has dropped it
            self._entries.move_to_end(record_id.int)
        return record

    def put(self, record: Record, *, seconds: float) -> None:
        self.drop(record.id)
        if record.status is not Status.COMPLETED or _is_long(record):
            return
        self._entries[record.id.int] = _Entry(record, self._clock(), min(seconds, self._seconds))
        if len(self._entries) > self._size:
            with suppress(KeyError):  # others have dropped all of them
                self._entries.popitem(last=False)

    def drop(self, record_id: UUID) -> None:
        self._entries.pop(record_id.int, None)

    def __len__(self) -> int:
        return len(self._entries)


def _is_long(record: Record) -> bool:
    body = MISSING if record.outcome is None else record.outcome.body
    return body is not MISSING and len(body) > LONGEST


class CircuitBreaker:
    """A circuit breaker around a front: a failure counts as a missing copy.

    After a failure the front is not used for PAUSE seconds, so a frozen server costs one call its
    timeout, and not every call of every request. A front that returns an error (`StoreRefused`) is
    up, and is used again.
    """

    def __init__(self, front: RecordCache, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.local = getattr(front, "local", False)
        self._front = front
        self._clock = clock
        self._failing = False
        self._again = self._warned = float("-inf")
        #: Is called at each failure, for the metrics: is the front down? Otherwise it has returned
        #: an error.
        self.failed: Callable[[bool], object] | None = None

    def peek(self, record_id: UUID) -> Record | None:
        if self._allows_call():
            with self._watched():
                return self._front.peek(record_id)
        return None

    def put(self, record: Record, *, seconds: float) -> None:
        if self._allows_call():
            with self._watched():
                self._front.put(record, seconds=seconds)

    def drop(self, record_id: UUID, *, insist: bool = False) -> bool:
        """Forget the copy.

        Return whether that was done. `insist`: also try a front that has just failed.
        """
        if insist or self._allows_call():
            with self._watched():
                self._front.drop(record_id)
                return True
        return False

    def _allows_call(self) -> bool:
        if not self._failing:
            return True
        now = self._clock()
        if now < self._again:
            return False
        self._again = now + PAUSE  # later calls wait for the result of this one
        return True

    @contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - any driver's error
            self._report(error, down=not isinstance(error, StoreRefused))
        else:
            self._failing = False

    def _report(self, error: Exception, *, down: bool) -> None:
        now = self._clock()
        self._failing = down
        self._again = now + PAUSE
        warns = now - self._warned >= WARN_EVERY
        if warns:
            self._warned = now
        with suppress(Exception):
            if self.failed is not None:
                self.failed(down)
        with suppress(Exception):  # a log filter may raise
            if warns:
                said = "is not responding" if down else "returned an error"
                logger.warning(
                    "A front %s. The stores behind it are used instead, more slowly.",
                    said,
                    exc_info=error,
                )
