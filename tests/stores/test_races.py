"""Many calls at once, through real connections: exactly one runs, and none raises."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import pytest
from django.db import connection, connections

from django_idempotency.core.conclusions import WorkResult
from django_idempotency.core.records import Status, Ticket
from django_idempotency.core.rules import Execute, Mismatch, Replay
from django_idempotency.models import IdempotencyRecord
from django_idempotency.stores.orm import ORMStore
from django_idempotency.testing.tickets import make_ticket
from testproject.payments.models import Effect

from .helpers import OUTCOME, Call, atomic_ticket, effects

pytestmark = [pytest.mark.usefixtures("crowd"), pytest.mark.django_db(transaction=True)]

CLAIMERS = 32

Result = TypeVar("Result")


class Claimers:
    """Threads that keep their connections, and start together."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.pool = ThreadPoolExecutor(size)
        self.start = threading.Barrier(size)

    def act(self, acts: list[Callable[[], Result]]) -> list[Result]:
        assert len(acts) == self.size
        return [
            future.result(timeout=120)
            for future in [self.pool.submit(self._act, act) for act in acts]
        ]

    def _act(self, act: Callable[[], Result]) -> Result:
        connection.ensure_connection()
        self.start.wait(timeout=60)
        return act()

    def leave(self) -> None:
        self.act([connections.close_all] * self.size)
        self.pool.shutdown()


@pytest.fixture
def claimers() -> Iterator[Claimers]:
    claimers = Claimers(CLAIMERS)
    yield claimers
    claimers.leave()


def names(verdicts: Iterable[object]) -> Counter[str]:
    return Counter(type(verdict).__name__ for verdict in verdicts)


#: The state of a round's key before all claim it at once.
def fresh(ticket: Ticket) -> None:
    """It was never claimed."""


def lapsed(ticket: Ticket) -> None:
    """Its owner died, and its lease is over."""
    ORMStore().claim(ticket)


def released(ticket: Ticket) -> None:
    """Its first run failed."""
    Call(ticket).run(WorkResult.FAILED)


def expired(ticket: Ticket) -> None:
    """Its response has expired."""
    Call(ticket).run()
    IdempotencyRecord.objects.update(
        expires_at="2020-01-01T00:00:00Z", purge_at="2020-01-01T00:00:00Z"
    )


MAKES = {
    "lease": make_ticket,
    "atomic": atomic_ticket,
    "atomic, leased": partial(atomic_ticket, lease=1),
}


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
@pytest.mark.parametrize(
    ("before", "rounds"), [(fresh, 10), (lapsed, 10), (released, 5), (expired, 5)]
)
def test_one_key(
    claimers: Claimers, make: Callable[..., Ticket], before: Callable[[Ticket], None], rounds: int
) -> None:
    """Of all calls with one key at once exactly one runs; the others are busy, or get its
    response.
    """
    for number in range(rounds):
        key = f"key-{number}"
        before(make(key=key, **({"lease": 0} if before is lapsed else {})))
        Effect.objects.all().delete()
        verdicts = claimers.act([Call(make(key=key)).run for _ in range(CLAIMERS)])
        counted = names(verdicts)
        assert (counted["Execute"], counted["Busy"] + counted["Replay"]) == (1, CLAIMERS - 1), (
            counted
        )
        assert {verdict.outcome for verdict in verdicts if isinstance(verdict, Replay)} <= {OUTCOME}
        assert (effects(), IdempotencyRecord.objects.get(key=key).status) == (1, Status.COMPLETED)


def test_failures_in_a_row(claimers: Claimers) -> None:
    """When the running call fails, the next may run at once, never two at a time, and no failure
    leaves anything.
    """
    running, most = [0], [0]

    def run() -> object:
        call = Call(atomic_ticket())
        verdict = call.open()
        if isinstance(verdict, Execute):
            running[0] += 1
            most[0] = max(most[0], running[0])
            call.work()
            running[0] -= 1
            call.settle(WorkResult.FAILED)
        return verdict

    verdicts = claimers.act([run] * CLAIMERS)
    counted = names(verdicts)
    assert (most[0], effects(), counted["Execute"] + counted["Busy"]) == (1, 0, CLAIMERS)


def test_two_requests_for_one_key(claimers: Claimers) -> None:
    """Of two different requests under one key at once, one runs, once, and the other is refused."""
    for number in range(5):
        bodies = [b"one", b"other"] * (CLAIMERS // 2)
        verdicts = claimers.act(
            [Call(atomic_ticket(key=f"key-{number}", body=body)).run for body in bodies]
        )
        counted = names(verdicts)
        assert (counted["Execute"], counted["Mismatch"]) == (1, CLAIMERS // 2), counted
        winner = {
            body
            for body, verdict in zip(bodies, verdicts, strict=True)
            if not isinstance(verdict, Mismatch)
        }
        assert len(winner) == 1


@pytest.mark.parametrize("make", [make_ticket, atomic_ticket], ids=["lease", "atomic"])
def test_distinct_keys(make: Callable[..., Ticket]) -> None:
    """Forty keys at once do not interfere: all run."""
    claimers = Claimers(40)
    try:
        verdicts = claimers.act(
            [Call(make(key=f"key-{number}")).run for number in range(claimers.size)]
        )
    finally:
        claimers.leave()
    assert names(verdicts) == {"Execute": claimers.size}
    assert effects() == claimers.size
