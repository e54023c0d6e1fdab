"""A forked child starts afresh, whatever its parent's threads were doing."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from uuid import UUID

from django_idempotency.stores.layered.caches import LocalCache

#: Held by a thread → what a child does then.
ACTS = {
    "store._lock": "store.get(UUID(int=1))",
    "front._lock": "front.peek(UUID(int=1))",
    "sheltered._lock": "sheltered.peek(UUID(int=1))",
    "layered._lock": "layered._lock.__enter__()",
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
from django_idempotency.stores.layered.caches import LocalCache, CircuitBreaker
from django_idempotency.stores.layered import LayeredStore
from django_idempotency.stores.memory import MemoryStore

warnings.simplefilter("ignore", DeprecationWarning)  # "fork in a process with threads": that is what is tried here
store, front, wait_slots = MemoryStore(), LocalCache(), waiting.wait_slots
sheltered, layered = CircuitBreaker(front), LayeredStore(front=front, authority=store)
sheltered._failing = True
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


def test_an_interrupt_leaves_no_lock_behind() -> None:
    """An interrupt releases the lock; otherwise every later call of the process would hang."""

    def interrupt(*_: object) -> None:
        raise SoftTimeLimitExceeded

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(200):
            front = LocalCache()
            with suppress(SoftTimeLimitExceeded):
                signal.setitimer(signal.ITIMER_REAL, random.uniform(2e-5, 2e-4))
                while True:
                    front.peek(UUID(int=1))
            peeked = threading.Thread(target=front.peek, args=(UUID(int=1),), daemon=True)
            peeked.start()
            peeked.join(10)
            assert not peeked.is_alive()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
