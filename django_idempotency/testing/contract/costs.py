"""The cost of each verb, in trips to the store's server."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from typing import Any

import pytest

from ...core.conclusions import SettledState
from ...core.hashing import first_operation
from ...core.records import Ticket
from ...core.rules import Execute
from ...stores.base import BaseStore
from ..tickets import make_ticket
from .base import Contract

#: The steps that `Contract.costs` may name, in the order in which they are counted.
STEPS = (
    *(
        "claim",
        "ours",
        "busy",
        "mismatch",
        "settle",
        "replay",
        "release",
        "next attempt",
        "takeover",
        "new life",
    ),
    *("late settle", "renew", "renew many", "get"),
)

#: Its name, the verb, and the verb's arguments.
Step = tuple[str, str, tuple[Any, ...]]


class Costs(Contract):
    """Tests of round trips. The deadlines lie in the past from the start, so no time has to pass in
    between.
    """

    def test_trips(self, store: BaseStore) -> None:
        """Each verb takes the trips that the subclass declares."""
        expected = self._expected()

        self._play(store, "warm", ())
        with self.trips(store) as trips:
            counted = self._play(store, "run", trips)
        assert {name: count for name, count in counted.items() if name in expected} == expected

    def _expected(self) -> dict[str, int]:
        costs = self.expected_costs()
        if not costs:
            pytest.skip(f"{type(self).__name__} does not say what its verbs cost.")
        assert set(costs) <= set(STEPS)
        return dict(costs)

    def _steps(self, key: str) -> Iterable[Step]:
        def terms(
            ticket: Ticket, leave: SettledState, attempt: int = 1, *, born_of: Ticket | None = None
        ) -> tuple[Any, ...]:
            settlement = self.settlement(ticket, leave, Execute(attempt=attempt), self.outcomes[0])
            return ticket, settlement._replace(operation=first_operation(born_of or ticket))

        first = make_ticket(key=key)
        yield "claim", "claim", (first,)
        yield "ours", "claim", (first,)
        yield "busy", "claim", (make_ticket(key=key),)
        yield "mismatch", "claim", (make_ticket(key=key, body=b"other"),)
        yield "renew", "renew", ([first],)
        yield "settle", "settle", terms(first, SettledState.COMPLETED)
        yield "replay", "claim", (make_ticket(key=key),)
        yield "get", "get", (first.id,)

        crashed, released, last = (
            make_ticket(key=f"{key}-2", lease=lease) for lease in (0, 30, 30)
        )
        yield "", "claim", (crashed,)
        yield "takeover", "claim", (released,)
        yield "late settle", "settle", terms(crashed, SettledState.COMPLETED)
        yield "release", "settle", terms(released, SettledState.BOUND, 2, born_of=crashed)
        yield "next attempt", "claim", (last,)

        old, new = (make_ticket(key=f"{key}-3", ttl=ttl) for ttl in (0, 60))
        yield "", "claim", (old,)
        yield "", "settle", terms(old, SettledState.BOUND)
        yield "new life", "claim", (new,)
        yield "renew many", "renew", ([last, new],)

    def _play(self, store: BaseStore, key: str, trips: Sized) -> dict[str, int]:
        """Take each step, and return what it took."""
        counted = {}
        for name, verb, arguments in self._steps(key):
            before = len(trips)
            getattr(store, verb)(*arguments)
            counted[name] = len(trips) - before
        return counted
