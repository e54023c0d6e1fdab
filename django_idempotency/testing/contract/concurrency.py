"""Many calls at one moment, from several processes if these can reach the store: one runs, and none fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import pytest

from ...core import rules
from ...core.conclusions import SettledState
from ...core.records import Guarantee, Status, Ticket
from ...core.rules import Execute, Replay
from ...stores.base import BaseStore
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
