"""What a durable execution leaves in the middle: it finds that again, nobody else does, and who dies over it is overtaken."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ...core import rules
from ...core.records import Record, Settlement, Status, Ticket
from ...core.rules import Busy, Execute, Leave, Replay
from ...errors import LostRace
from ...stores.base import BaseStore
from ...suspension import Execution, renewed, resume
from ..tickets import make_ticket
from .base import Contract, seconds
from .crew import Act
from .crowds import Crowd

EXECUTION = Execution("order-17", (KeyboardInterrupt,), resumes_within=500)
TAKEN_OVER = Execute(attempt=2, takeover=True)


class Suspending(Contract):
    """Tests of `settle` and `renew` as `suspension` uses them."""

    def test_suspended(self, store: BaseStore) -> None:
        """The record runs on, under another token, a long lease and a retention of its own; its owner has lost it."""
        owner = make_ticket(lease=30, ttl=100)
        store.claim(owner)
        self.elapse(store, 20)
        suspended = self.suspend(store, owner)
        record = self.look(store, owner)
        assert (record.status, record.owner, record.attempt) == (Status.RUNNING, suspended.owner, 1)
        assert (record.outcome, record.completed_at) == (None, None)
        assert abs((seconds(record, "lease_until") or 0) - 500) < 1
        assert abs((seconds(record, "expires_at") or 0) - 100) < 1
        assert store.renew([owner]) == set()
        assert self.settle(store, owner, Leave.COMPLETED, Execute(attempt=1), self.outcomes[0]) is False
        self.elapse(store, 400)
        store.purge(limit=10)
        other = make_ticket()
        assert rules.read(store.claim(other), other) == Busy(retry_after=100)

    def test_resumed(self, store: BaseStore) -> None:
        """It goes on as the same attempt, with a lease and a retention as at its first claim, and is completed."""
        suspended = self.suspend(store, self.running(store))
        self.elapse(store, 400)
        owner = make_ticket(lease=30, ttl=1000)
        resumed = resume(store, owner, suspended, store.claim(owner))
        assert rules.read(resumed, owner, resuming=1) == Execute(attempt=1, resumed=True)
        record = self.look(store, owner)
        assert (record.status, record.owner, record.attempt) == (Status.RUNNING, owner.owner, 1)
        assert abs((seconds(record, "lease_until") or 0) - 30) < 1
        assert abs((seconds(record, "expires_at") or 0) - 1000) < 1
        assert self.settle(store, owner, Leave.COMPLETED, Execute(attempt=1), self.outcomes[0]) is True
        self.elapse(store, 600)
        again = make_ticket()
        assert rules.read(store.claim(again), again) == Replay(outcome=self.outcomes[0], attempt=1)

    def test_suspended_again(self, store: BaseStore) -> None:
        """As often as it takes. Who has resumed it earlier, and was thought dead, neither settles nor resumes."""
        suspended = self.suspend(store, self.running(store))
        earlier, later = make_ticket(), make_ticket()
        seen = store.claim(earlier)
        resume(store, earlier, suspended, seen)
        assert self.suspend(store, earlier).owner == suspended.owner
        assert resume(store, later, suspended, seen).owner == later.owner
        assert resume(store, earlier, suspended, seen).owner == suspended.owner  # as it was seen
        assert self.settle(store, earlier, Leave.BOUND, Execute(attempt=1)) is False
        assert store.renew([earlier, suspended, later]) == {later.owner}

    def test_one_of_many(self, store: BaseStore, crowd: Crowd) -> None:
        """All resume at one moment: one has it."""
        suspended = self.suspend(store, self.running(store))
        tickets = [make_ticket(ttl=1000) for _ in range(min(self.claimers, 20))]
        seen = store.claim(tickets[0])
        acts: list[Act[bool]] = [partial(resumes, ticket, suspended, seen) for ticket in tickets]
        answers = crowd(store, acts)
        assert answers.count(True) == 1
        assert self.look(store, tickets[0]).owner == tickets[answers.index(True)].owner

    def test_never_resumed(self, store: BaseStore) -> None:
        """When its time is over it counts as crashed, for its own execution, too."""
        self.suspend(store, self.running(store))
        self.elapse(store, 501)
        assert self.claim(store, make_ticket()) == TAKEN_OVER

    def test_dead_after_either_step(self, store: BaseStore) -> None:
        """Who dies while it suspends or resumes leaves a short lease behind, and is overtaken."""
        owner = self.running(store)
        suspended = EXECUTION.suspended(owner, 1)
        store.settle(suspended, self.passed_on(owner, suspended))  # and dies
        self.elapse(store, 31)
        taker = make_ticket()
        assert self.claim(store, taker) == TAKEN_OVER

        suspended = self.suspend(store, taker, attempt=2)
        assert renewed(store, replace(suspended, lease=30))  # and dies
        self.elapse(store, 31)
        taker = make_ticket()
        assert self.claim(store, taker) == Execute(attempt=3, takeover=True)

        suspended = self.suspend(store, taker, attempt=3)
        resumed = make_ticket(lease=30)
        resume(store, resumed, suspended, store.claim(resumed))  # and dies
        self.elapse(store, 31)
        assert self.claim(store, make_ticket()) == Execute(attempt=4, takeover=True)

    def test_overtaken_before(self, store: BaseStore) -> None:
        """An owner whose lease has lapsed meanwhile suspends nothing that is another's."""
        owner = self.running(store)
        self.elapse(store, 31)
        self.claim(store, thief := make_ticket())
        suspended = EXECUTION.suspended(owner, 1)
        assert store.settle(suspended, self.passed_on(owner, suspended)) is False
        assert renewed(store, suspended) is False
        assert self.look(store, owner).owner == thief.owner

    def running(self, store: BaseStore) -> Ticket:
        self.claim(store, ticket := make_ticket(lease=30, ttl=1000))
        return ticket

    def suspend(self, store: BaseStore, owner: Ticket, attempt: int = 1) -> Ticket:
        suspended = EXECUTION.suspended(owner, attempt)
        assert store.settle(suspended, replace(self.passed_on(owner, suspended), attempt=attempt)) is True
        assert renewed(store, suspended) is True
        return suspended

    def passed_on(self, owner: Ticket, suspended: Ticket) -> Settlement:
        fence = rules.born(owner, owner.now)
        return self.settlement(suspended, Leave.SUSPENDED, Execute(attempt=1), fence=fence)


def resumes(ticket: Ticket, suspended: Ticket, seen: Record, store: BaseStore) -> bool:
    """Resume; who lost a race asks once more, as the engine does."""
    for _ in range(2):
        try:
            return resume(store, ticket, suspended, seen).owner == ticket.owner
        except LostRace:
            continue
    return False
