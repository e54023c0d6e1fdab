"""Many calls at one moment, from several processes if these can reach the store: one runs, and none fails.

The last asks whether an order explains all that clients see who fail, die, return late and retry.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from functools import partial
from itertools import chain, product
from typing import Any

import pytest

from ...core import conclusions, rules
from ...core.conclusions import SettledState
from ...core.records import Guarantee, Outcome, Status, Ticket
from ...core.rules import Busy, Execute, Mismatch, Replay
from ...stores.base import BaseStore
from ..linearizability import Answer, Call, History, assert_linearizable
from ..tickets import make_ticket
from .base import Contract
from .workers import Act, Workers, claimed, settled, together

AtOnce = Callable[[Any, Sequence[Act[Any]]], list[Any]]

_WORKERS = pytest.StashKey[Workers]()


class Concurrency(Contract):
    """Tests with `claimers`, in the processes that `elsewhere` gives access to the store, or otherwise in threads."""

    @pytest.fixture
    def at_once(self, request: pytest.FixtureRequest) -> AtOnce:
        """Return what carries out several acts at the same moment."""
        if not self.shared:
            pytest.skip(f"{type(self).__name__}: others do not see what this store writes.")

        def act(store: Any, acts: Sequence[Act[Any]]) -> list[Any]:
            make = self.elsewhere(store)
            return together(store, acts) if make is None else workers_of(request.config).act(make, acts)

        return act

    def test_one_key(self, store: BaseStore, at_once: AtOnce) -> None:
        """All claim one key: one runs and the others are busy. Then all read its response."""
        for guarantee in self._guarantees(store):
            key = guarantee.value
            tickets = [make_ticket(key=key, guarantee=guarantee) for _ in range(self.claimers)]
            verdicts = at_once(store, claims(tickets))
            assert names(verdicts) == {"Execute": 1, "Busy": self.claimers - 1}
            ((owner, run),) = runners(tickets, verdicts)
            assert run == Execute(attempt=1)
            assert self.stored(store, owner).owner == owner.owner
            assert self.settle(store, owner, SettledState.COMPLETED, run, self.outcomes[0]) is True
            verdicts = at_once(store, claims(make_ticket(key=key, guarantee=guarantee) for _ in range(self.claimers)))
            assert set(verdicts) == {Replay(outcome=self.outcomes[0], attempt=1)}

    def test_as_many_keys(self, store: BaseStore, at_once: AtOnce) -> None:
        """Each claims its own key: all run, and each owns its record."""
        tickets = [make_ticket(key=f"{number}") for number in range(self.claimers)]
        assert set(at_once(store, claims(tickets))) == {Execute(attempt=1)}
        for ticket in tickets:
            assert self.stored(store, ticket).owner == ticket.owner

    def test_takeovers(self, store: BaseStore, at_once: AtOnce) -> None:
        """All find a lapsed lease, a released key, or an expired response: one runs, as the correct attempt."""
        terms = {
            "lapsed": (None, Execute(attempt=2, takeover=True)),
            "released": (SettledState.BOUND, Execute(attempt=2)),
            "expired": (SettledState.COMPLETED, Execute(attempt=1)),
        }
        for key, (leave, _) in terms.items():
            ticket = make_ticket(key=key, lease=5, ttl=50 if key == "expired" else 5000)
            store.claim(ticket)
            if leave is not None:
                self.leave(store, ticket, leave, self.outcomes[0])
        self.elapse(store, 60)
        takers = min(self.claimers, 20)
        for key, (_, expected) in terms.items():
            tickets = [make_ticket(key=key) for _ in range(takers)]
            verdicts = at_once(store, claims(tickets))
            assert names(verdicts) == {"Execute": 1, "Busy": takers - 1}
            ((owner, run),) = runners(tickets, verdicts)
            assert (self.stored(store, owner).owner, run) == (owner.owner, expected)

    def test_a_settle_races_a_takeover(self, store: BaseStore, at_once: AtOnce) -> None:
        """A late owner settles or releases during a takeover: exactly one succeeds, and the record shows which."""
        for number, leave in enumerate((SettledState.COMPLETED, SettledState.BOUND) * 8):
            takers = 1 if number % 4 < 2 else 7  # among many, the settle rarely begins first
            place = number % (takers + 1)
            late = make_ticket(key=f"{number}", lease=5)
            run = self.claim(store, late)
            self.elapse(store, 6)
            tickets = [make_ticket(key=f"{number}") for _ in range(takers)]
            acts: list[Act[Any]] = claims(tickets)
            acts.insert(place, partial(settled, late, self.settlement(late, leave, run, self.outcomes[0])))
            verdicts = at_once(store, acts)
            won = verdicts.pop(place)
            record = self.stored(store, late)
            if won and leave is SettledState.COMPLETED:
                assert (record.status, record.owner, record.attempt) == (Status.COMPLETED, late.owner, 1)
                assert set(names(verdicts)) <= {"Replay", "Busy"}
            else:  # taken over, or released and claimed immediately
                ((owner, run),) = runners(tickets, verdicts)
                assert (record.status, record.owner, record.attempt) == (Status.RUNNING, owner.owner, 2)
                assert run.attempt == 2
                if won:
                    assert run.takeover is False

    def _guarantees(self, store: BaseStore) -> list[Guarantee]:
        return list(Guarantee) if store.supports_atomic else [Guarantee.LEASE]


def workers_of(config: pytest.Config) -> Workers:
    """Return the processes of this test run; starting them takes longer than their work."""
    if _WORKERS not in config.stash:
        config.stash[_WORKERS] = Workers()
        config.add_cleanup(config.stash[_WORKERS].leave)
    return config.stash[_WORKERS]


def claims(tickets: Iterable[Ticket]) -> list[Act[Any]]:
    return [partial(claimed, ticket) for ticket in tickets]


def names(verdicts: Iterable[object]) -> Counter[str]:
    return Counter(type(verdict).__name__ for verdict in verdicts)


def runners(tickets: Sequence[Ticket], verdicts: Sequence[rules.Verdict]) -> list[tuple[Ticket, Execute]]:
    """Return the tickets that may run, each with its verdict."""
    both = zip(tickets, verdicts, strict=True)
    return [(ticket, verdict) for ticket, verdict in both if isinstance(verdict, Execute)]


# ------------------------------------------------------------------------------------------------------------ histories

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
    settlement = conclusions.settlement(state, ticket, run, fence=None, outcome=outcome, ttl=None)
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
