"""A time limit cuts a statement of ours in a caller's transaction: the caller goes on, or is rolled
back, and never reads the response of another statement, or waits for one without end.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from uuid import UUID

import pytest
from django.db import Error, connection, transaction

from django_idempotency import idempotent_function
from django_idempotency.core.records import Guarantee, Settlement, Status, Ticket
from django_idempotency.stores.orm import ORMStore
from django_idempotency.testing.tickets import make_ticket
from testproject.payments.models import Effect
from tests.support.interrupts import HardLimit, TimeLimit, limited

from ..helpers import OUTCOME, committed, elsewhere

pytestmark = [
    committed,
    pytest.mark.slow,
    # PyMySQL's, of a response that was cut, and of a signal at the end of an object.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SEED = 37
#: Seconds of callers, and how many at least.
DURATION, FEWEST = 2.0, 50
#: Who waits for so many seconds waits for a response that never comes.
ENDLESS = 20.0
NEW = UUID(int=7)


class Endless(BaseException):
    """A statement had no response."""


def claim(ticket: Ticket) -> None:
    ORMStore().claim(ticket)


def settle(ticket: Ticket) -> None:
    assert ORMStore().settle(ticket, settlement(ticket))


def renew(ticket: Ticket) -> None:
    assert ORMStore().renew([ticket]) == {ticket.owner}


def job(key: str) -> str:
    return key


JOB = idempotent_function(key="key", key_prefix="cut")(job)


def call(ticket: Ticket) -> None:
    JOB(ticket.key)


def settlement(ticket: Ticket) -> Settlement:
    return Settlement(
        status=Status.COMPLETED,
        fence=ticket.owner,
        attempt=1,
        digest=ticket.digest,
        operation=ticket.id,
        outcome=OUTCOME,
    )


def own(ticket: Ticket) -> Ticket:
    claim(ticket)
    return ticket


#: What is cut, and the ticket that it gets: some continue a claim.
VERBS: dict[str, tuple[Callable[[Ticket], None], Callable[[str], Ticket]]] = {
    "claim": (claim, lambda key: make_ticket(key=key)),
    "known": (claim, lambda key: own(make_ticket(key=key))),
    "takeover": (claim, lambda key: own(make_ticket(key=key, lease=0))._replace(owner=NEW)),
    "settle": (settle, lambda key: own(make_ticket(key=key))),
    "renew": (renew, lambda key: own(make_ticket(key=key))),
    # With a guard, which its engine ends from one frame further out.
    "call": (call, lambda key: make_ticket(key=key, guarantee=Guarantee.ATOMIC)),
}


class Caller:
    """Calls a verb in a transaction of its own, in which a time limit comes."""

    def __init__(self, verb: str, key: str) -> None:
        self.act, prepare = VERBS[verb]
        self.ticket = prepare(key)
        self.key = key
        self.is_cut = False

    def run(self, seconds: float, error: type[BaseException], *, goes_on: bool) -> None:
        """Cut the verb after so many seconds. The caller goes on, or lets the error pass."""
        with transaction.atomic():
            Effect.objects.create(label="caller", idempotency_key=self.key, attempt=1)
            try:
                with limited(seconds, error):
                    self.act(self.ticket)
            except error:
                self.is_cut = True
                if not goes_on:
                    raise
            read(self.key)


def read(key: str) -> None:
    """Read what only a right response says."""
    assert [echo(number) for number in range(3)] == [0, 1, 2]
    assert list(Effect.objects.filter(idempotency_key=key).values_list("label")) == [("caller",)]


def echo(number: int) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s", [number])
        return int(cursor.fetchone()[0])


def has_effect(key: str) -> bool:
    return Effect.objects.filter(idempotency_key=key).exists()


@pytest.mark.parametrize("verb", VERBS)
def test_a_caller_whose_call_is_cut(verb: str) -> None:
    moments = random.Random(SEED)
    numbers = count()
    usual = min(duration(verb, f"{verb}-usual-{number}") for number in range(5))
    ends = time.monotonic() + DURATION
    cut = 0
    for number in numbers:
        if time.monotonic() > ends and number >= FEWEST:
            break
        caller = Caller(verb, f"{verb}-{number}")
        error = moments.choice([TimeLimit, HardLimit])
        committed = False
        with limited(ENDLESS, Endless):
            try:
                caller.run(
                    moments.uniform(0.00001, usual * 1.2), error, goes_on=moments.random() < 0.5
                )
                committed = True
            except (error, Error):
                assert caller.is_cut
            assert elsewhere(partial(has_effect, caller.key)) is committed
            assert echo(number) == number
            assert not connection.in_atomic_block
            assert connection.get_autocommit()
        cut += caller.is_cut
    assert cut > number // 10


def duration(verb: str, key: str) -> float:
    caller = Caller(verb, key)
    with transaction.atomic():
        began = time.monotonic()
        caller.act(caller.ticket)
        return time.monotonic() - began
