"""A forked child starts afresh, whatever its parent's threads were doing."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from contextlib import suppress

from django_idempotency.core.concurrency import holding, new_lock

#: Held by a thread → what a child does then.
ACTS = {
    "store._lock": "store.get(UUID(int=1))",
    "switch._changing": "switch.warn_once()",
    "new_lock()": "assert wait_slots.count == 0",  # a waiter in the parent takes no place here
}
#: In a process of its own: a fork of this one would take pytest along. `alarm` ends a child that
#: hangs.
SCRIPT = f"""
import os, signal, threading, warnings
from uuid import UUID
from django_idempotency.runtime import switch
from django_idempotency.engine import waiting
from django_idempotency.core.concurrency import new_lock
from django_idempotency.stores.memory import MemoryStore

warnings.simplefilter("ignore", DeprecationWarning)  # "fork in a process with threads": that is what is tried here
store, wait_slots = MemoryStore(), waiting.wait_slots
assert wait_slots.enter()

def hold(lock, holding, done):
    with lock:
        holding.set()
        done.wait()

for lock, act in {ACTS!r}.items():
    holding, done = threading.Event(), threading.Event()
    threading.Thread(target=hold, args=(eval(lock), holding, done)).start()
    holding.wait()
    child = os.fork()
    if not child:
        signal.alarm(5)
        exec(act)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    done.set()
    if status:
        print(lock)
"""


def test_a_lock_that_another_thread_holds() -> None:
    """A lock held by another thread of the parent is open in the child, where no thread would ever
    release it.
    """
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], check=True, timeout=60, capture_output=True, text=True
    )
    assert done.stdout.split() == [], done.stderr


class SoftTimeLimitExceeded(Exception):
    """Raises as Celery does: in the main thread, between any two lines."""


class Entries(dict[int, int]):
    """Writes by a method, so that an interrupt may come inside of what the lock is held for."""

    def write(self, key: int) -> None:
        self[key] = self.get(key, 0) + 1


def test_an_interrupt_leaves_no_lock_behind() -> None:
    """An interrupt releases the lock; otherwise every later call of the process would hang. On
    Python 3.14 `with lock:` does not.
    """

    def interrupt(*_: object) -> None:
        raise SoftTimeLimitExceeded

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(200):
            lock = new_lock()
            entries = Entries()
            with suppress(SoftTimeLimitExceeded):
                signal.setitimer(signal.ITIMER_REAL, random.uniform(2e-5, 2e-4))
                while True:
                    holding(lock, entries.write, 1)
            assert not lock.locked()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
