"""Workers that send one key after another, each until its response is stored: clients that retry,
through an outage.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import count

from django_idempotency.core import conclusions, rules
from django_idempotency.core.conclusions import SettledState
from django_idempotency.core.records import Outcome, Ticket
from django_idempotency.core.rules import Execute, Replay
from django_idempotency.errors import LostRace, StoreUnavailable
from django_idempotency.stores.base import BaseStore
from django_idempotency.testing.tickets import make_ticket

OUTCOME = Outcome(
    status=201, headers=(("Content-Type", "application/json"),), body=b'{"id": 1}' * 100
)
#: Seconds. No lease ends in a run, so work that runs twice has lost its record.
LEASE = 600
PAUSE = 0.02


@dataclass(frozen=True, kw_only=True)
class Figures:
    requests: int
    #: Keys whose work ran more than once, of those whose response had been stored and of the
    #: others.
    twice_after_response: int
    twice_before: int
    refused: int
    #: The longest time that one key was refused, in seconds.
    silent: float

    def __str__(self) -> str:
        return (
            f"{self.requests} keys; ran twice: {self.twice_after_response} after their "
            "response was stored, "
            f"{self.twice_before} before; {self.refused} claims refused; one key was "
            f"refused for up to {self.silent:.1f} s"
        )


class Load:
    def __init__(self, store: BaseStore, *, workers: int = 8) -> None:
        self._store = store
        self._runs: Counter[str] = Counter()
        self._stored: set[str] = set()
        self._refused: Counter[str] = Counter()
        self._silent = 0.0
        self._over = threading.Event()
        self._pool = ThreadPoolExecutor(workers)
        self._workers = [self._pool.submit(self._work, number) for number in range(workers)]

    @property
    def stored(self) -> int:
        return len(self._stored)

    def end(self) -> Figures:
        """Stop the workers, then send each key again. Raises what a worker has raised."""
        self._over.set()
        for worker in self._workers:
            worker.result()
        self._pool.shutdown()
        before = {key for key, runs in self._runs.items() if runs > 1}
        after = [key for key in self._stored if self._send_again(key)]
        return Figures(
            requests=len(self._stored),
            twice_after_response=len(after),
            twice_before=len(before.difference(after)),
            refused=self._refused.total(),
            silent=self._silent,
        )

    def _work(self, worker: int) -> None:
        for number in count():
            if self._over.is_set():
                return
            self._send(f"{worker}-{number}")

    def _send(self, key: str) -> None:
        begun = time.monotonic()
        while not self._over.is_set():
            ticket = make_ticket(key=key, lease=LEASE)
            stored = False
            with suppress(StoreUnavailable, LostRace):
                verdict = rules.read(self._store.claim(ticket), ticket)
                stored = isinstance(verdict, Replay)
                if isinstance(verdict, Execute):
                    self._runs[key] += 1
                    stored = self._settle(ticket, verdict)
            if stored:
                self._stored.add(key)
                break
            self._refused[key] += 1
            time.sleep(PAUSE)
        if self._refused[key]:
            self._silent = max(self._silent, time.monotonic() - begun)

    def _settle(self, ticket: Ticket, run: Execute) -> bool:
        """Write the response until it is there, or the record is not ours, as the package does
        until the lease ends.
        """
        settlement = conclusions.settlement(
            SettledState.COMPLETED, ticket, run, fence=None, outcome=OUTCOME, ttl=None
        )
        assert settlement is not None
        while not self._over.is_set():
            try:
                return self._store.settle(ticket, settlement)
            except (StoreUnavailable, LostRace):
                time.sleep(PAUSE)
        return False

    def _send_again(self, key: str) -> bool:
        """Does a request with the key run its work again?"""
        ticket = make_ticket(key=key, lease=LEASE)
        return isinstance(rules.read(self._store.claim(ticket), ticket), Execute)
