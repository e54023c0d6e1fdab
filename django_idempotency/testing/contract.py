"""What every store keeps. Inherit it, say how your store is made and how its time passes, and run it with pytest:

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self):
            return MyStore(clock=...)

        def elapse(self, store, seconds):
            ...

Call `pytest.register_assert_rewrite("django_idempotency.testing.contract")` before the import for readable failures.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar
from uuid import uuid4

from asgiref.sync import async_to_sync

from ..core import rules
from ..core.records import MISSING, Guarantee, Outcome, Record, Status, Ticket
from ..core.rules import Leave
from ..stores.base import BaseStore
from .tickets import make_ticket


class StoreContract:
    """A class of tests. Every test gets an empty store from the fixture `store`, which you define."""

    #: Answers that must come back as they were: what is falsy, what is no text, what is no ASCII.
    outcomes: ClassVar[tuple[Outcome, ...]] = (
        Outcome(status=201, headers=(("Content-Type", "application/json"), ("Location", "/1/")), body=b'{"id": 1}'),
        Outcome(status=204, body=b""),  # an empty answer
        Outcome(status=200, body=MISSING),  # an answer that was not stored
        Outcome(status=200, body=b"0"),
        Outcome(status=200, body=b"null"),
        Outcome(status=200, body=bytes(range(256)) * 4),
        Outcome(status=200, headers=(("X-Name", "Grüße, 東京"), ("Link", "</a>"), ("Link", "</b>")), body=b"\x1f\x8b"),
        Outcome(status=302, headers=(("X-Empty", ""),), body=b"x" * 100_000),
    )

    def elapse(self, store: Any, seconds: float) -> None:
        """Let time pass for the store, without sleeping."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------------------ helpers

    def leave(
        self, store: BaseStore, ticket: Ticket, leave: Leave, outcome: Outcome | None = None, **given: Any
    ) -> bool:
        """Settle a record that the ticket owns."""
        record = store.claim(ticket)
        run = rules.read(record, ticket)
        assert isinstance(run, rules.Execute), f"this ticket does not own its record, but reads {run}"
        return self.settle(store, ticket, leave, run, outcome, **given)

    def settle(
        self,
        store: BaseStore,
        ticket: Ticket,
        leave: Leave,
        run: rules.Execute,
        outcome: Outcome | None = None,
        *,
        ttl: float | None = None,
    ) -> bool:
        settlement = rules.settlement(leave, ticket, run, fence=None, outcome=outcome, ttl=ttl)
        assert settlement is not None
        return store.settle(ticket, settlement)

    def complete(self, store: BaseStore, ticket: Ticket, **given: Any) -> bool:
        return self.leave(store, ticket, Leave.COMPLETED, self.outcomes[0], **given)

    def look(self, store: BaseStore, ticket: Ticket) -> Record:
        """Read a record without a chance to take it."""
        return store.claim(replace(ticket, owner=uuid4(), digest=b"never".ljust(32)))

    # -------------------------------------------------------------------------------------------------------- claim

    def test_a_new_key(self, store: BaseStore) -> None:
        """The first claim becomes the record, whole."""
        ticket = make_ticket()
        record = store.claim(ticket)
        for name in ("id", "scope", "key", "digest", "owner", "guarantee", "secret_id", "method", "path"):
            assert getattr(record, name) == getattr(ticket, name)
        assert (record.status, record.attempt, record.completed_at, record.outcome) == (Status.RUNNING, 1, None, None)
        assert abs((record.lease_until - record.read_at).total_seconds() - ticket.lease) < 1
        assert abs((record.expires_at - record.read_at).total_seconds() - ticket.ttl) < 1
        assert abs((record.created_at - record.read_at).total_seconds()) < 1
        assert record.read_at.utcoffset() is not None

    def test_a_live_lease(self, store: BaseStore) -> None:
        """A second claim changes nothing and sees the first."""
        first, second = make_ticket(), make_ticket()
        claimed = store.claim(first)
        self.elapse(store, first.lease - 10)
        assert store.claim(second).owner == first.owner
        assert self.look(store, first).attempt == claimed.attempt == 1

    def test_a_lease_that_is_over_at_once(self, store: BaseStore) -> None:
        """A claim never takes itself over."""
        assert store.claim(make_ticket(lease=0)).attempt == 1

    def test_other_keys_do_not_meet(self, store: BaseStore) -> None:
        """Another scope or key, even if a collation finds them equal, is another record."""
        tickets = [
            make_ticket(key="k"),
            make_ticket(key="K"),
            make_ticket(key="k "),
            make_ticket(key="k", scope="user:2"),
        ]
        assert [store.claim(ticket).owner for ticket in tickets] == [ticket.owner for ticket in tickets]

    def test_the_longest_key(self, store: BaseStore) -> None:
        """255 characters are kept as they are, and the 255th counts."""
        one, other = make_ticket(key="k" * 254 + "1"), make_ticket(key="k" * 254 + "2")
        assert [store.claim(ticket).key for ticket in (one, other)] == [one.key, other.key]

    def test_a_collision(self, store: BaseStore) -> None:
        """A record of another scope under the same id is handed out as it is, and never taken."""
        first = make_ticket()
        store.claim(first)
        self.elapse(store, first.ttl + 1)
        record = store.claim(make_ticket(scope="user:2", id=first.id))
        assert (record.scope, record.owner) == (first.scope, first.owner)

    # ----------------------------------------------------------------------------------------------------- takeover

    def test_a_lapsed_lease(self, store: BaseStore) -> None:
        """The next claim after the lease takes the record over: attempt 2, a lease of its own."""
        first, second = make_ticket(), make_ticket(lease=50)
        store.claim(first)
        self.elapse(store, first.lease + 1)
        record = store.claim(second)
        assert (record.owner, record.attempt, record.status, record.taken) == (second.owner, 2, Status.RUNNING, True)
        assert store.claim(second).taken is False  # it says so once
        assert abs((record.lease_until - record.read_at).total_seconds() - 50) < 1

    def test_a_late_owner(self, store: BaseStore) -> None:
        """Who was overtaken settles nothing."""
        first, second = make_ticket(), make_ticket()
        run = rules.read(store.claim(first), first)
        assert isinstance(run, rules.Execute)
        self.elapse(store, first.lease + 1)
        assert store.claim(second).owner == second.owner
        for leave in (Leave.COMPLETED, Leave.FREE, Leave.BOUND):
            assert self.settle(store, first, leave, run, self.outcomes[0]) is False
        assert (self.look(store, second).owner, self.look(store, second).status) == (second.owner, Status.RUNNING)
        assert self.complete(store, second) is True

    def test_late_but_not_overtaken(self, store: BaseStore) -> None:
        """A lapsed lease that nobody took is still its owner's to settle."""
        ticket = make_ticket()
        run = rules.read(store.claim(ticket), ticket)
        assert isinstance(run, rules.Execute)
        self.elapse(store, ticket.lease + 1)
        assert self.settle(store, ticket, Leave.COMPLETED, run, self.outcomes[0]) is True
        assert self.look(store, ticket).status is Status.COMPLETED

    def test_a_lapsed_lease_and_another_request(self, store: BaseStore) -> None:
        """Only the same request continues what an owner left."""
        first = make_ticket()
        store.claim(first)
        self.elapse(store, first.lease + 1)
        assert store.claim(make_ticket(body=b"other")).owner == first.owner

    # ------------------------------------------------------------------------------------------------------- settle

    def test_outcomes(self, store: BaseStore) -> None:
        """Every answer comes back as it was, and is never taken for none."""
        for number, outcome in enumerate(self.outcomes):
            ticket = make_ticket(key=f"key-{number}")
            assert self.leave(store, ticket, Leave.COMPLETED, outcome) is True
            record = store.claim(make_ticket(key=f"key-{number}"))
            assert (record.status, record.outcome, record.attempt) == (Status.COMPLETED, outcome, 1)
            assert record.completed_at is not None

    def test_completed_stays(self, store: BaseStore) -> None:
        """A completed record is not taken, however long ago its lease was."""
        first = make_ticket()
        self.complete(store, first)
        self.elapse(store, first.ttl - 100)
        assert store.claim(make_ticket()).outcome == self.outcomes[0]

    def test_settling_keeps_the_deadline(self, store: BaseStore) -> None:
        """The expiry is fixed by the claim."""
        ticket = make_ticket()
        claimed = store.claim(ticket)
        self.elapse(store, 10)
        self.complete(store, ticket)
        left = (self.look(store, ticket).expires_at - claimed.expires_at).total_seconds()
        assert abs(left) < 1 or abs(left + 10) < 1  # by whether elapse() moves the clock or the records

    def test_a_response_with_its_own_ttl(self, store: BaseStore) -> None:
        """A response may live for longer or shorter than its claim said."""
        ticket = make_ticket()
        self.complete(store, ticket, ttl=60)
        record = self.look(store, ticket)
        assert abs((record.expires_at - record.read_at).total_seconds() - 60) < 1

    # ------------------------------------------------------------------------------------------------------ release

    def test_released(self, store: BaseStore) -> None:
        """A released key is free at once, for the same request, as the next attempt, and holds no answer."""
        first, second = make_ticket(), make_ticket()
        self.leave(store, first, Leave.BOUND)
        record = self.look(store, first)
        assert (record.status, record.attempt, record.outcome, record.completed_at) == (Status.FREE, 1, None, None)
        record = store.claim(second)
        assert (record.owner, record.attempt, record.status, record.taken) == (second.owner, 2, Status.RUNNING, False)

    def test_released_and_bound(self, store: BaseStore) -> None:
        """After a failure another request under the key is refused, not run."""
        self.leave(store, make_ticket(), Leave.BOUND)
        record = store.claim(make_ticket(body=b"other"))
        assert (record.status, record.digest) == (Status.FREE, make_ticket().digest)

    def test_released_and_unbound(self, store: BaseStore) -> None:
        """After a refusal a corrected request takes the key, and binds it again."""
        self.leave(store, make_ticket(), Leave.FREE)
        corrected = make_ticket(body=b"corrected")
        record = store.claim(corrected)
        assert (record.owner, record.attempt, record.digest) == (corrected.owner, 2, corrected.digest)

    # -------------------------------------------------------------------------------------------------------- renew

    def test_renewed(self, store: BaseStore) -> None:
        """The leases of several running records begin anew in one call, each with its own length."""
        tickets = [make_ticket(key="short", lease=30), make_ticket(key="long", lease=300)]
        for ticket in tickets:
            store.claim(ticket)
        self.elapse(store, 20)
        assert store.renew(tickets) == {ticket.owner for ticket in tickets}
        for ticket in tickets:
            record = self.look(store, ticket)
            assert abs((record.lease_until - record.read_at).total_seconds() - ticket.lease) < 1
            assert (record.status, record.owner, record.attempt) == (Status.RUNNING, ticket.owner, 1)

    def test_renewing_what_is_not_ours(self, store: BaseStore) -> None:
        """What was overtaken, settled, released or never claimed is not renewed, and not changed."""
        overtaken, completed, released, unknown, ours = (make_ticket(key=str(number)) for number in range(5))
        store.claim(overtaken)
        self.complete(store, completed)
        self.leave(store, released, Leave.BOUND)
        self.elapse(store, overtaken.lease + 1)
        thief = make_ticket(key=overtaken.key)
        store.claim(thief)
        store.claim(ours)
        assert store.renew([overtaken, completed, released, unknown, ours]) == {ours.owner}
        assert self.look(store, overtaken).owner == thief.owner
        assert self.look(store, completed).outcome == self.outcomes[0]

    def test_a_lapsed_lease_that_nobody_took(self, store: BaseStore) -> None:
        """An owner who was silent for too long, and whom nobody noticed, is still the owner."""
        ticket = make_ticket()
        store.claim(ticket)
        self.elapse(store, ticket.lease + 1)
        assert store.renew([ticket]) == {ticket.owner}
        assert store.claim(make_ticket()).owner == ticket.owner

    # ------------------------------------------------------------------------------------------------------- expiry

    def test_a_new_life(self, store: BaseStore) -> None:
        """After its retention a key starts again, for any request, and nothing of the old one is left."""
        old = make_ticket(secret_id="0ld", method="PUT", path="/old/")  # noqa: S106 - names a secret, and is none
        self.complete(store, old)
        self.elapse(store, old.ttl + 1)
        new = make_ticket(body=b"other", method="PATCH")
        record = store.claim(new)
        assert (record.owner, record.attempt, record.digest, record.status) == (
            new.owner,
            1,
            new.digest,
            Status.RUNNING,
        )
        assert (record.method, record.path, record.secret_id) == (new.method, new.path, new.secret_id)
        assert (record.outcome, record.completed_at) == (None, None)
        assert abs((record.created_at - record.read_at).total_seconds()) < 1
        assert abs((record.expires_at - record.read_at).total_seconds() - new.ttl) < 1

    def test_expired_under_its_owner(self, store: BaseStore) -> None:
        """A lease outlives the retention: nobody takes what still runs."""
        first = make_ticket(lease=100, ttl=50)
        store.claim(first)
        self.elapse(store, 60)
        assert store.claim(make_ticket()).owner == first.owner

    # -------------------------------------------------------------------------------------------------------- purge

    def test_purge(self, store: BaseStore) -> None:
        """What has expired and is leased by nobody goes; what is not, stays."""
        if store.expires_natively:
            assert store.purge(limit=100).count == 0
            return
        gone = {name: make_ticket(key=name, ttl=50, lease=40) for name in ("completed", "released", "lapsed")}
        kept = {
            "leased": make_ticket(key="leased", ttl=50, lease=100),
            "young": make_ticket(key="young", ttl=100, lease=1),
        }
        self.complete(store, gone["completed"])
        self.leave(store, gone["released"], Leave.FREE)
        for ticket in (gone["lapsed"], *kept.values()):
            store.claim(ticket)
        self.elapse(store, 60)
        assert store.purge(limit=100).count == len(gone)
        assert {name: self.look(store, ticket).owner for name, ticket in kept.items()} == {
            name: ticket.owner for name, ticket in kept.items()
        }
        again = {name: store.claim(make_ticket(key=name)) for name in gone}
        assert {name: record.attempt for name, record in again.items()} == dict.fromkeys(gone, 1)

    def test_purge_in_batches(self, store: BaseStore) -> None:
        """A batch is bounded, resumes where the last one ended, and says when nothing is left."""
        if store.expires_natively:
            assert store.purge(limit=2).count == 0
            return
        for number in range(5):
            store.claim(make_ticket(key=f"key-{number}", ttl=10 + number, lease=1))
        self.elapse(store, 60)
        counts, since = [], None
        for _ in range(4):
            counts.append((batch := store.purge(limit=2, since=since)).count)
            since = batch.resume
        assert (counts, since) == ([2, 2, 1, 0], None)

    # -------------------------------------------------------------------------------------------------------- twins

    def test_async_twins(self, store: BaseStore) -> None:
        """The async verbs do the same to the same rows."""
        ticket = make_ticket()
        record = async_to_sync(store.aclaim)(ticket)
        assert (record.owner, record.attempt) == (ticket.owner, 1)
        run = rules.read(record, ticket)
        assert isinstance(run, rules.Execute)
        settlement = rules.settlement(Leave.COMPLETED, ticket, run, fence=None, outcome=self.outcomes[0], ttl=None)
        assert settlement is not None
        assert async_to_sync(store.asettle)(ticket, replace(settlement, fence=uuid4())) is False
        assert async_to_sync(store.asettle)(ticket, settlement) is True
        assert self.look(store, ticket).outcome == self.outcomes[0]

    # ------------------------------------------------------------------------------------------------------- atomic

    def test_atomic_takeovers_are_the_guards(self, store: BaseStore) -> None:
        """In `atomic` a claim writes nothing into a record that it meets: the guard's lock decides."""
        if not store.supports_atomic:
            return
        first, second = (make_ticket(guarantee=Guarantee.ATOMIC, lease=1) for _ in range(2))
        store.claim(first)
        self.elapse(store, 2)
        assert store.claim(second).owner == first.owner

    def test_no_guard_in_lease(self, store: BaseStore) -> None:
        """A `lease` guard holds nothing, so the work may take as long as it likes."""
        with store.guard(make_ticket()) as hold:
            assert (hold.joins, hold.record, hold.doomed()) == (False, None, False)
