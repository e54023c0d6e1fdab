"""Clients that claim, run, fail, die, return late and retry at one moment: an order explains all that they see."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from enum import Enum
from functools import partial
from itertools import chain, product

from ...core import rules, settlements
from ...core.conclusions import SettledState
from ...core.records import Outcome, Ticket
from ...core.rules import Busy, Execute, Mismatch, Replay
from ...stores.base import BaseStore
from ..linearizability import Answer, Call, History, assert_linearizable
from ..tickets import make_ticket
from .concurrency import AtOnce, Concurrency
from .workers import Act, claimed, settled

#: How often each client sends its request.
TRIES = 2


class Ending(Enum):
    """What becomes of a client that may run."""

    COMPLETES = "completes"
    FAILS = "fails"
    DIES = "dies"


class Histories(Concurrency):
    """Compares nothing with what a test expects: it asks only if all responses together are possible."""

    def test_a_history(self, store: BaseStore, at_once: AtOnce) -> None:
        """Some fail and some die; after the end of all leases, dead owners return while others take over."""
        history = History()
        clients = max(3, self.claimers // 10)
        first = [
            *(make_ticket(key=ending.value, lease=5) for ending, _ in product(Ending, range(clients))),
            *(make_ticket(key="two", body=body, lease=5) for body in (b"one", b"other") * (clients // 2)),
        ]
        note(history, at_once(store, [partial(sent, ticket, Ending(ending_of(ticket))) for ticket in first]))
        self.elapse(store, 60)
        second = [make_ticket(key=key, body=body) for _ in range(clients) for key, body in requests(first)]
        acts: list[Act[list[Call]]] = [partial(sent, ticket, Ending.COMPLETES) for ticket in second]
        acts += [partial(returned, ticket) for ticket in first if ticket.key == Ending.DIES.value]
        note(history, at_once(store, acts))
        assert_linearizable(history)


def ending_of(ticket: Ticket) -> str:
    return Ending.COMPLETES.value if ticket.key == "two" else ticket.key


def requests(tickets: Sequence[Ticket]) -> list[tuple[str, bytes]]:
    """Return one request for each key."""
    return [(key, b"one" if key == "two" else b"{}") for key in sorted({ticket.key for ticket in tickets})]


def note(history: History, calls: Sequence[list[Call]]) -> None:
    for call in chain.from_iterable(calls):
        history.append(call)


def sent(ticket: Ticket, ending: Ending, store: BaseStore) -> list[Call]:
    """Send a request under a key as often as a client does that retries. One that dies does not."""
    return list(_sent(ticket, ending, store))


def _sent(ticket: Ticket, ending: Ending, store: BaseStore) -> Iterator[Call]:
    for _ in range(TRIES):
        invoked = time.monotonic()
        verdict = claimed(ticket, store)
        answer, response = _answered(ticket, verdict, ending, store)
        responded = None if answer is Answer.UNKNOWN else time.monotonic()
        yield _call(ticket, invoked, responded, answer, response)
        if answer is Answer.UNKNOWN:
            return
        ticket = make_ticket(key=ticket.key, lease=ticket.lease)._replace(digest=ticket.digest)


def _answered(
    ticket: Ticket, verdict: rules.Verdict, ending: Ending, store: BaseStore
) -> tuple[Answer, Outcome | None]:
    match verdict:
        case Execute() if ending is Ending.DIES:
            return Answer.UNKNOWN, None
        case Execute():
            return _settled(ticket, verdict, ending, store)
        case Replay(outcome=outcome):
            return Answer.REPLAYED, outcome
        case Busy():
            return Answer.BUSY, None
        case Mismatch():
            return Answer.MISMATCH, None
    raise AssertionError(f"The store's record reads {verdict}.")


def _settled(ticket: Ticket, run: Execute, ending: Ending, store: BaseStore) -> tuple[Answer, Outcome | None]:
    state = SettledState.BOUND if ending is Ending.FAILS else SettledState.COMPLETED
    outcome = Outcome(status=201, body=ticket.owner.hex.encode())
    settlement = settlements.settlement(state, ticket, run, fence=None, outcome=outcome, ttl=None)
    assert settlement is not None
    if not settled(ticket, settlement, store):
        return Answer.LOST, outcome
    return (Answer.FAILED, None) if ending is Ending.FAILS else (Answer.EXECUTED, outcome)


def returned(ticket: Ticket, store: BaseStore) -> list[Call]:
    """Settle late, after the end of a lease. That of a ticket that did not own its record is refused, as any other's."""
    invoked = time.monotonic()
    answer, outcome = _settled(ticket, Execute(attempt=1), Ending.COMPLETES, store)
    return [_call(ticket, invoked, time.monotonic(), answer, outcome)] if answer is Answer.EXECUTED else []


def _call(ticket: Ticket, invoked: float, responded: float | None, answer: Answer, response: Outcome | None) -> Call:
    return Call(
        key=ticket.key,
        client=ticket.owner.hex[:8],
        request=ticket.digest,
        invoked=invoked,
        responded=responded,
        answer=answer,
        response=response,
    )
