"""Nested calls, in many threads, under several policies: a store keeps no state of a single call."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...core import rules
from ...core.conclusions import SettledState
from ...core.records import Guarantee
from ...core.rules import Busy, Execute, Replay
from ...stores.base import BaseStore
from ..tickets import make_ticket
from .base import Contract
from .workers import together

#: What two routes request from one store.
POLICIES: tuple[dict[str, Any], ...] = ({"lease": 30, "ttl": 600}, {"lease": 300, "ttl": 86400})


class Nesting(Contract):
    """Tests of simultaneous calls on one store."""

    def test_nested(self, store: BaseStore) -> None:
        """A nested call runs with another key; with its own key it is busy."""
        self._call(0, store)

    def test_threads(self, store: BaseStore) -> None:
        """The same in many threads under two policies: no call affects another."""
        if self.shared:
            together(store, [partial(self._call, number) for number in range(16)])

    def _call(self, number: int, store: BaseStore) -> None:
        policy, other_policy = POLICIES[number % 2], POLICIES[1 - number % 2]
        outer, inner = make_ticket(key=f"outer-{number}", **policy), make_ticket(key=f"inner-{number}", **other_policy)
        run = self.claim(store, outer)
        with store.guard(outer):
            nested = self.claim(store, inner)
            again = make_ticket(key=outer.key, **other_policy)
            verdict = rules.read(store.claim(again), again)
            assert isinstance(verdict, Busy)
            assert policy["lease"] - 20 < verdict.retry_after <= policy["lease"]  # the owner's lease, not ours
            with store.guard(inner):
                assert self.settle(store, inner, SettledState.COMPLETED, nested, self.outcomes[1]) is True
        assert self.settle(store, outer, SettledState.COMPLETED, run, self.outcomes[0]) is True
        for ticket, outcome, terms in ((outer, self.outcomes[0], policy), (inner, self.outcomes[1], other_policy)):
            later = make_ticket(key=ticket.key, ttl=5)
            record = store.claim(later)
            assert rules.read(record, later) == Replay(outcome=outcome, attempt=1)
            assert record.owner == ticket.owner
            assert abs((record.expires_at - record.created_at).total_seconds() - terms["ttl"]) < 0.1

    def test_two_policies(self, store: BaseStore) -> None:
        """Each record keeps its own lease, retention and guarantee, whichever policy a later request has."""
        short = make_ticket(key="short", lease=30, ttl=600, guarantee=Guarantee.LEASE)
        long = make_ticket(key="long", lease=300, ttl=86400, guarantee=Guarantee.ATOMIC)
        for ticket in (short, long):
            store.claim(ticket)
        assert store.renew([long, short]) == {short.owner, long.owner}
        self.elapse(store, 31)
        crossed = [make_ticket(key="short", lease=300, ttl=86400), make_ticket(key="long", lease=30, ttl=600)]
        records = [store.claim(ticket) for ticket in crossed]
        assert [record.owner for record in records] == [crossed[0].owner, long.owner]
        assert [record.guarantee for record in records] == [Guarantee.LEASE, Guarantee.ATOMIC]
        assert self.settle(store, crossed[0], SettledState.COMPLETED, Execute(attempt=2), self.outcomes[0]) is True
        assert self.complete(store, long) is True
        self.elapse(store, 3600)  # beyond the retention of the first owner, but not of the second
        replays = [make_ticket(key=key) for key in ("short", "long")]
        assert [type(rules.read(store.claim(ticket), ticket)) for ticket in replays] == [Replay, Replay]
