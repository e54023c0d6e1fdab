"""Records that a durable execution suspends: they pass to its token, and from there to who resumes
them.
"""

from __future__ import annotations

from functools import partial

from ...core import conclusions, rules
from ...core.conclusions import SettledState
from ...core.hashing import suspension_token
from ...core.records import Record, Status, Ticket
from ...core.rules import Busy, Execute, Mismatch, Replay
from ...errors import LostRace
from ...stores.base import BaseStore
from ..tickets import make_ticket
from .base import Contract, seconds
from .concurrency import Act, AtOnce

#: Seconds for which a suspended record waits.
WITHIN = 500
TAKEN_OVER = Execute(attempt=2, takeover=True)


class Suspending(Contract):
    """Tests of `settle` where it hands a running record over, as `contrib.steps.durable` does."""

    def test_suspended(self, store: BaseStore) -> None:
        """A suspended record runs on for its request, under another token and a long lease; its
        owner has lost it.
        """
        owner = make_ticket(lease=30, ttl=100)
        self.claim(store, owner)
        self.elapse(store, 20)
        asleep = self.sleep(store, owner)
        record = self.stored(store, owner)
        assert (record.status, record.owner, record.attempt) == (Status.RUNNING, asleep.owner, 1)
        assert (record.outcome, record.completed_at, record.digest) == (None, None, owner.digest)
        assert abs((seconds(record, "lease_until") or 0) - 500) < 1
        assert abs((seconds(record, "expires_at") or 0) - 600) < 1
        assert store.renew([owner]) == set()
        assert self.done(store, owner, Execute(attempt=1)) is False
        assert self.settle(store, owner, SettledState.BOUND, Execute(attempt=1)) is False
        self.elapse(store, 400)
        store.purge(limit=10)
        for other, verdict in (
            (make_ticket(), Busy(retry_after=100)),
            (make_ticket(body=b"other"), Mismatch()),
        ):
            assert rules.read(store.claim(other), other) == verdict

    def test_resumed(self, store: BaseStore) -> None:
        """It resumes as the same attempt, with the lease and retention of its first claim, and is
        completed.
        """
        self.sleep(store, self.running(store))
        self.elapse(store, 400)
        owner = make_ticket(lease=30, ttl=1000)
        found = resumed(store, owner, store.claim(owner))
        assert rules.read(found, owner, resuming=1) == Execute(attempt=1, resumed=True)
        record = self.stored(store, owner)
        assert (record.status, record.owner, record.attempt) == (Status.RUNNING, owner.owner, 1)
        assert (record.digest, record.operation) == (owner.digest, found.operation)
        assert abs((seconds(record, "lease_until") or 0) - 30) < 1
        assert abs((seconds(record, "expires_at") or 0) - 1000) < 1
        assert store.renew([owner]) == {owner.owner}
        assert self.done(store, owner, Execute(attempt=1)) is True
        self.elapse(store, 600)
        again = make_ticket()
        assert rules.read(store.claim(again), again) == Replay(outcome=self.outcomes[0], attempt=1)

    def test_suspended_again(self, store: BaseStore) -> None:
        """It can be suspended repeatedly.

        An earlier invocation, thought dead, neither settles nor resumes it.
        """
        asleep = self.sleep(store, self.running(store))
        earlier = make_ticket()
        later = make_ticket()
        seen = store.claim(earlier)
        resumed(store, earlier, seen)
        assert self.sleep(store, earlier).owner == asleep.owner
        assert resumed(store, later, seen).owner == later.owner
        assert resumed(store, earlier, seen) == seen
        assert self.settle(store, earlier, SettledState.BOUND, Execute(attempt=1)) is False
        assert store.renew([earlier, asleep, later]) == {later.owner}

    def test_a_response_that_was_lost(self, store: BaseStore) -> None:
        """If the response to a resume was lost, the next claim finds that the record is its own."""
        self.sleep(store, self.running(store))
        owner = make_ticket()
        seen = store.claim(owner)
        # Its response is lost.
        assert store.settle(owner, conclusions.handover(seen, owner)) is True
        assert resumed(store, owner, seen).owner == owner.owner

    def test_one_of_many(self, store: BaseStore, at_once: AtOnce) -> None:
        """When all resume it at one moment, one succeeds."""
        self.sleep(store, self.running(store))
        tickets = [make_ticket() for _ in range(min(self.claimers, 20))]
        seen = store.claim(tickets[0])
        acts: list[Act[bool]] = [partial(wakes, ticket, seen) for ticket in tickets]
        answers = at_once(store, acts)
        assert answers.count(True) == 1
        assert self.stored(store, tickets[0]).owner == tickets[answers.index(True)].owner

    def test_never_resumed(self, store: BaseStore) -> None:
        """After its time it counts as crashed, for its own execution too, and even if it would have
        expired.
        """
        for key, ttl in (("remembered", 1000), ("forgotten", 100)):
            self.sleep(store, self.running(store, key=key, ttl=ttl))
        self.elapse(store, 501)
        for key in ("remembered", "forgotten"):
            assert self.claim(store, make_ticket(key=key)) == TAKEN_OVER

    def test_resumed_and_crashed(self, store: BaseStore) -> None:
        """After a resume and a crash, a short lease counts, not the long one; then a new attempt is
        suspended.
        """
        asleep = self.sleep(store, self.running(store))
        dead = make_ticket(lease=30)
        resumed(store, dead, store.claim(dead))
        self.elapse(store, 31)
        taker = make_ticket(lease=30)
        assert self.claim(store, taker) == TAKEN_OVER
        assert self.sleep(store, taker).owner != asleep.owner

    def test_overtaken_before(self, store: BaseStore) -> None:
        """An owner that was overtaken after its lease lapsed cannot suspend the record."""
        owner = self.running(store)
        before = self.stored(store, owner)
        self.elapse(store, 31)
        thief = make_ticket()
        asleep = asleep_under(before, owner)
        self.claim(store, thief)
        assert store.settle(asleep, conclusions.handover(before, asleep)) is False
        assert self.stored(store, owner).owner == thief.owner

    def running(self, store: BaseStore, *, key: str = "key-1", ttl: float = 1000) -> Ticket:
        ticket = make_ticket(key=key, lease=30, ttl=ttl)
        self.claim(store, ticket)
        return ticket

    def sleep(self, store: BaseStore, owner: Ticket) -> Ticket:
        record = self.stored(store, owner)
        asleep = asleep_under(record, owner)
        assert store.settle(asleep, conclusions.handover(record, asleep)) is True
        return asleep


def asleep_under(record: Record, owner: Ticket) -> Ticket:
    """Return the ticket that suspends a record of this owner."""
    token = suspension_token("order-17", record.id, record.attempt)
    return owner._replace(owner=token, lease=WITHIN, ttl=WITHIN + owner.ttl)


def resumed(store: BaseStore, ticket: Ticket, seen: Record) -> Record:
    """Resume a suspended record under a ticket, written again if it was refused: its response may
    have been lost.
    """
    handover = conclusions.handover(seen, ticket)
    ours = store.settle(ticket, handover) or store.settle(
        ticket, handover._replace(fence=ticket.owner)
    )
    return seen._replace(owner=ticket.owner) if ours else seen


def wakes(ticket: Ticket, seen: Record, store: BaseStore) -> bool:
    """Resume a record; after a lost race, try once more, as the engine does."""
    for _ in range(2):
        try:
            return resumed(store, ticket, seen).owner == ticket.owner
        except LostRace:
            continue
    return False
