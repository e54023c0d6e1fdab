"""Counts replays and mismatches in memory, and writes them in batches: one thread per process.

replay ─ +1 ─ response        nothing is written here
thread ──── PAUSE ──── one batch per store

What was not yet written is lost when the process is killed, and so is a batch that its store does
not take: the counts are lower bounds, and no replay waits for them.
"""

from __future__ import annotations

import atexit
import logging
from collections import defaultdict
from contextlib import suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING
from uuid import UUID

from ..core.concurrency import holding
from ..core.records import Counted, Record, Repeats
from ..engine.background import Background

if TYPE_CHECKING:
    from ..stores.base import BaseStore

logger = logging.getLogger("django_idempotency")

#: Seconds between two batches.
PAUSE = 10.0
#: Keys that may wait for a batch; the repeats of any more are not counted.
MOST = 10_000


class RepeatCounter(Background):
    """The repeats that wait to be written. Thread safe. `flush()` is one batch, so that a test need
    not wait.
    """

    name = "django-idempotency-repeats"

    def reset_after_fork(self) -> None:
        """Forget what waits: after a fork it is the parent's, which writes it, and the thread does
        not exist.
        """
        self._waiting: dict[tuple[BaseStore, UUID], Counted] = {}
        super().reset_after_fork()

    def add(self, store: BaseStore, record: Record, *, replayed: bool) -> None:
        """Count a request that a record has answered, or refused since it was another one.

        Writes nothing.
        """
        if not store.counts_repeats:
            return
        once = Repeats(int(replayed), int(not replayed), datetime.now(timezone.utc))
        holding(self._lock, self._add, store, record, once)

    def _add(self, store: BaseStore, record: Record, once: Repeats) -> None:
        key = store, record.id
        known = self._waiting.get(key)
        if known is None and len(self._waiting) >= MOST:
            return
        repeats = once if known is None else _sum(known.repeats, once)
        self._waiting[key] = Counted(record.id, repeats, record.purge_at)
        with suppress(RuntimeError):  # the interpreter is ending: drain() writes it
            self._start()

    def flush(self) -> None:
        """Write what waits, each store's in one batch."""
        with self._lock:
            waiting = self._waiting
            self._waiting = {}
        batches: defaultdict[BaseStore, list[Counted]] = defaultdict(list)
        for (store, _), counted in waiting.items():
            batches[store].append(counted)
        for store, batch in batches.items():
            try:
                with store.apart():
                    store.add_repeats(batch)
            except (
                Exception
            ):  # no second try: the first may have been written, and would count twice
                logger.debug("The repeats of %d keys were not written.", len(batch), exc_info=True)

    def drain(self) -> None:
        """End the thread and write what waits. Used at the end of a process."""
        self.flush()
        with self._lock:
            self._changed.notify_all()

    # --------------------------------------------------------------------------------------- thread

    def _pause(self) -> bool:
        with self._lock:
            if self._waiting:
                self._changed.wait(PAUSE)
                return True
            return self._end()

    def _work(self) -> None:
        self.flush()


def _sum(one: Repeats, other: Repeats) -> Repeats:
    last_seen = max(one.last_seen, other.last_seen)
    return Repeats(one.replays + other.replays, one.mismatches + other.mismatches, last_seen)


repeats = RepeatCounter()
atexit.register(repeats.drain)
