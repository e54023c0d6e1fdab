"""Clients that retry as good clients do: under the same key, with full jitter, no sooner than they
are asked to.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from random import SystemRandom

import httpx

from django_idempotency.testing.linearizability import History

from .workloads import Workload

#: Seconds: the longest pause before the second try, and before any; the time for one response; for
#: one operation.
PAUSE, LONGEST_PAUSE = 0.1, 2.0
TIMEOUT = 20
PATIENCE = 120

random = SystemRandom()


class Clients:
    """Threads, each with its own connection. Two of them send each key, at about the same
    moment.
    """

    def __init__(self, workload: Workload, url: str, size: int) -> None:
        self.history = History()
        #: Keys, each once for a client: those that were sent, and those whose client has given up.
        self.begun: Counter[str] = Counter()
        self.unfinished: Counter[str] = Counter()
        self.statuses: Counter[str] = Counter()
        #: Seconds, from an operation's first request to the response that it waited for, and from a
        #: request to its end.
        self.slowest = 0.0
        self.slowest_request = 0.0
        self._workload, self._url = workload, url
        self._keys = self._twice()
        self._over = threading.Event()
        self._changing = threading.Lock()
        self._threads = [
            threading.Thread(target=self._work, name=f"client-{number}") for number in range(size)
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Begin no more operations, and wait for those that have begun."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _twice(self) -> Iterator[str]:
        while True:
            key = str(uuid.uuid4())
            yield from (key, key)

    def _work(self) -> None:
        with httpx.Client(base_url=self._url, timeout=TIMEOUT, trust_env=False) as client:
            while not self._over.is_set():
                with self._changing:
                    key = next(self._keys)
                    self.begun[key] += 1
                began = time.monotonic()
                if self._workload.is_abandoned(key):
                    with suppress(httpx.TransportError):
                        self._send(client, key)
                    continue
                finished = self._insist(client, key)
                with self._changing:
                    self.unfinished[key] += not finished
                    self.slowest = max(self.slowest, time.monotonic() - began)

    def _insist(self, client: httpx.Client, key: str) -> bool:
        deadline, pause = time.monotonic() + PATIENCE, PAUSE
        while time.monotonic() < deadline:
            least = 0.0
            with suppress(httpx.TransportError):
                response = self._send(client, key)
                if self._workload.is_finished(response):
                    return True
                least = float(response.headers.get("Retry-After", 0))
            time.sleep(least + random.uniform(0, pause))
            pause = min(2 * pause, LONGEST_PAUSE)
        return False

    def _send(self, client: httpx.Client, key: str) -> httpx.Response:
        status, began = "", time.monotonic()
        try:
            response = self.history.send(
                lambda: self._workload.send(client, key),
                key=key,
                client=threading.current_thread().name,
            )
        except httpx.TransportError as error:
            status = f"no response: {type(error).__name__}"
            raise
        else:
            status = f"status {response.status_code}"
            return response
        finally:
            with self._changing:
                self.statuses[status] += 1
                self.slowest_request = max(self.slowest_request, time.monotonic() - began)
