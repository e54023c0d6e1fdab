"""The async verbs have the same effects on the same records."""

from __future__ import annotations

import asyncio
from collections import Counter

from asgiref.sync import async_to_sync

from ...core import rules
from ...core.conclusions import SettledState
from ...core.records import Ticket
from ...core.rules import Busy, Execute, Mismatch, Replay
from ...stores.base import BaseStore
from ..tickets import make_ticket
from .base import Contract


class AsyncVariants(Contract):
    """Tests of `aclaim` and `asettle`."""

    def test_a_life_in_one_loop(self, store: BaseStore) -> None:
        """One loop sees a first run, a busy key, another body, a takeover, a late owner, a release and replays."""

        async def verdict(ticket: Ticket) -> rules.Verdict:
            return rules.read(await store.aclaim(ticket), ticket)

        async def live() -> None:
            first, second, third = make_ticket(lease=0), make_ticket(), make_ticket()
            assert await verdict(first) == Execute(attempt=1)
            assert await verdict(second) == Execute(attempt=2, takeover=True)
            assert isinstance(await verdict(third), Busy)
            assert await verdict(make_ticket(body=b"other")) == Mismatch()
            late = self.settlement(first, SettledState.COMPLETED, Execute(attempt=1), self.outcomes[0])
            assert await store.asettle(first, late) is False
            released = self.settlement(second, SettledState.BOUND, Execute(attempt=2))
            assert await store.asettle(second, released) is True
            assert await verdict(third) == Execute(attempt=3)
            for number, outcome in enumerate(self.outcomes):
                ticket = make_ticket(key=f"{number}")
                assert await verdict(ticket) == Execute(attempt=1)
                settlement = self.settlement(ticket, SettledState.COMPLETED, Execute(attempt=1), outcome)
                assert await store.asettle(ticket, settlement) is True
                assert await verdict(make_ticket(key=f"{number}")) == Replay(outcome=outcome, attempt=1)

        async_to_sync(live)()

    def test_many_tasks(self, store: BaseStore) -> None:
        """Of many tasks with one key in one loop, one runs and the others are busy; with different keys, all run."""

        async def claim(tickets: list[Ticket]) -> Counter[str]:
            records = await asyncio.gather(*[store.aclaim(ticket) for ticket in tickets])
            read = [rules.read(record, ticket) for record, ticket in zip(records, tickets, strict=True)]
            return Counter(type(verdict).__name__ for verdict in read)

        one = [make_ticket() for _ in range(20)]
        assert async_to_sync(claim)(one) == {"Execute": 1, "Busy": 19}
        assert async_to_sync(claim)([make_ticket(key=f"{number}") for number in range(20)]) == {"Execute": 20}
