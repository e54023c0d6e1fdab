"""How work ends: settled with its response, released, or too late; and how long its record is kept."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from ...core import rules
from ...core.conclusions import SettledState
from ...core.failures import Failure, failed_with, failure_in, failure_of
from ...core.hashing import next_operation
from ...core.interventions import CHANGES, Intervention, erased, expired_now, released
from ...core.records import Guarantee, Record, Status, Ticket
from ...core.rules import Execute
from ...stores.base import BaseStore
from ...stores.wrapper import innermost
from ..tickets import NOW, make_ticket
from .base import Contract


class Endings(Contract):
    """Tests of `settle`, and of an operator's `release`, `expire` and `erase`."""

    def test_outcomes(self, store: BaseStore) -> None:
        """Every response comes back unchanged, and is never read as missing."""
        for number, outcome in enumerate(self.outcomes):
            ticket = make_ticket(key=f"key-{number}")
            assert self.leave(store, ticket, SettledState.COMPLETED, outcome) is True
            record = store.claim(make_ticket(key=f"key-{number}"))
            assert (record.status, record.outcome, record.attempt) == (Status.COMPLETED, outcome, 1)
            assert record.completed_at is not None
            looked = store.get(ticket.id)
            assert looked is not None
            assert looked.outcome == outcome

    def test_settling_keeps_the_deadline(self, store: BaseStore) -> None:
        """The claim fixes the expiry."""
        ticket = make_ticket()
        claimed = store.claim(ticket)
        self.elapse(store, 10)
        self.complete(store, ticket)
        left = (self.stored(store, ticket).expires_at - claimed.expires_at).total_seconds()
        assert abs(left) < 1 or abs(left + 10) < 1  # depends on whether elapse() moves the clock or the records

    def test_a_response_with_its_own_ttl(self, store: BaseStore) -> None:
        """A response may be kept for longer or shorter than its claim requested."""
        for ttl in (60, 1_000_000):
            ticket = make_ticket(key=f"{ttl}")
            self.complete(store, ticket, ttl=ttl)
            record = self.stored(store, ticket)
            assert abs((record.expires_at - record.read_at).total_seconds() - ttl) < 1

    def test_a_new_life_that_is_settled(self, store: BaseStore) -> None:
        """A settle that begins a new life, as with `atomic`, writes its operation; any other leaves it unchanged."""
        old, new = make_ticket(), make_ticket()
        self.complete(store, old)
        self.elapse(store, old.ttl + 1)
        expired, run = self.stored(store, old), rules.Execute(attempt=1, new_life=True)
        assert self.settle(store, new, SettledState.BOUND, run, fence=expired) is True
        assert self.stored(store, new).operation == rules.operation_of(expired, run)
        later = make_ticket()
        self.complete(store, later)
        assert self.stored(store, later).operation == rules.operation_of(expired, run)

    def test_settled_twice(self, store: BaseStore) -> None:
        """An owner whose first settle got no response settles again; the time of completion does not change."""
        ticket = make_ticket()
        run = self.claim(store, ticket)
        assert self.settle(store, ticket, SettledState.COMPLETED, run, self.outcomes[0]) is True
        self.elapse(store, 100)
        assert self.settle(store, ticket, SettledState.COMPLETED, run, self.outcomes[0]) is True
        record = self.stored(store, ticket)
        assert record.completed_at is not None
        assert abs((record.read_at - record.completed_at).total_seconds() - 100) < 1

    # --------------------------------------------------------------------------------------------------------- late

    def test_a_late_owner(self, store: BaseStore) -> None:
        """An owner that was overtaken cannot settle."""
        first, second = make_ticket(), make_ticket()
        run = self.claim(store, first)
        self.elapse(store, first.lease + 1)
        assert store.claim(second).owner == second.owner
        for leave in (SettledState.COMPLETED, SettledState.FREE, SettledState.BOUND):
            assert self.settle(store, first, leave, run, self.outcomes[0]) is False
        assert (self.stored(store, second).owner, self.stored(store, second).status) == (second.owner, Status.RUNNING)
        assert self.complete(store, second) is True
        for leave in (SettledState.COMPLETED, SettledState.FREE, SettledState.BOUND):
            assert self.settle(store, first, leave, run, self.outcomes[1]) is False
        assert self.stored(store, second).outcome == self.outcomes[0]

    def test_late_but_not_overtaken(self, store: BaseStore) -> None:
        """An owner can still settle after its lease has lapsed, if the record was not taken over."""
        ticket = make_ticket()
        run = self.claim(store, ticket)
        self.elapse(store, ticket.lease + 1)
        assert self.settle(store, ticket, SettledState.COMPLETED, run, self.outcomes[0]) is True
        assert self.stored(store, ticket).status is Status.COMPLETED

    def test_late_for_a_life(self, store: BaseStore) -> None:
        """An owner that returns after the key has begun a new life cannot settle that life."""
        first, second = make_ticket(lease=5, ttl=10), make_ticket(body=b"other")
        run = self.claim(store, first)
        self.elapse(store, 11)
        assert self.claim(store, second).attempt == run.attempt == 1
        for leave in (SettledState.COMPLETED, SettledState.FREE, SettledState.BOUND):
            assert self.settle(store, first, leave, run, self.outcomes[0]) is False
        assert self.stored(store, second).owner == second.owner

    # ------------------------------------------------------------------------------------------------------ release

    def test_released(self, store: BaseStore) -> None:
        """A released key is free at once, for the same request, as the next attempt, and without a response."""
        first, second = make_ticket(), make_ticket()
        self.leave(store, first, SettledState.BOUND)
        record = self.stored(store, first)
        assert (record.status, record.attempt, record.outcome, record.completed_at) == (Status.FREE, 1, None, None)
        record = store.claim(second)
        assert (record.owner, record.attempt, record.status, record.taken) == (second.owner, 2, Status.RUNNING, False)

    def test_released_with_a_failure(self, store: BaseStore) -> None:
        """A release keeps how the attempt failed, in the trip that it takes anyway, until the next claim."""
        failed, ticket = failed_with(ValueError("secret"), at=NOW), make_ticket()
        self.leave(store, ticket, SettledState.BOUND, failed)
        record = self.stored(store, ticket)
        assert (record.status, record.outcome, record.completed_at) == (Status.FREE, failed, None)
        assert failure_of(record) == Failure(500, "ValueError", NOW)
        again = make_ticket()
        assert self.claim(store, again).attempt == 2
        claimed = store.get(ticket.id)
        assert claimed is not None
        assert (claimed.status, claimed.outcome) == (Status.RUNNING, None)
        self.elapse(store, 100)
        assert self.settle(store, again, SettledState.COMPLETED, Execute(attempt=2), self.outcomes[0])
        done = self.stored(store, ticket)
        assert (done.outcome, done.completed_at is None) == (self.outcomes[0], False)

    def test_a_failure_that_is_completed_where_it_stands(self, store: BaseStore) -> None:
        """With `atomic` nothing is written before the settle: the response then replaces the failure, and has its own time."""
        failed, ticket = failed_with(None, at=NOW, status=503), make_ticket()
        self.leave(store, ticket, SettledState.BOUND, failed)
        found = self.stored(store, ticket)
        self.elapse(store, 100)
        again = make_ticket(guarantee=Guarantee.ATOMIC)
        assert self.settle(store, again, SettledState.COMPLETED, Execute(attempt=2), self.outcomes[0], fence=found)
        done = store.get(ticket.id)
        assert done is not None
        assert done.outcome == self.outcomes[0]
        assert done.completed_at is not None
        assert (done.completed_at - done.created_at).total_seconds() == pytest.approx(100, abs=5)

    def test_an_erased_failure(self, store: BaseStore) -> None:
        """What is erased or forgotten by hand notes nothing of a failure."""
        for name, status in (("erase", Status.FREE), ("forget", Status.COMPLETED)):
            ticket = make_ticket(key=name)
            self.leave(store, ticket, SettledState.BOUND, failed_with(ValueError(), at=NOW))
            assert store.change(ticket.id, CHANGES[name], audit=list[Record]().append) is Intervention.DONE
            record = store.get(ticket.id)
            assert record is not None
            assert (record.status, failure_in(record.outcome)) == (status, None)

    def test_released_and_unbound(self, store: BaseStore) -> None:
        """After a refusal, a corrected request takes the key and binds it again."""
        self.leave(store, make_ticket(), SettledState.FREE)
        corrected = make_ticket(body=b"corrected")
        record = store.claim(corrected)
        assert (record.owner, record.attempt, record.digest) == (corrected.owner, 2, corrected.digest)

    # ----------------------------------------------------------------------------------------------- by an operator

    @pytest.mark.parametrize("verb", ["release", "expire", "erase"])
    def test_by_hand(self, store: BaseStore, verb: str) -> None:
        """It needs a record, and no live lease. What was there is audited once, and its owner cannot settle any more."""
        ticket, audited = make_ticket(), list[Record]()

        def change() -> Intervention:
            return store.change(ticket.id, CHANGES[verb], audit=audited.append)

        assert change() is Intervention.GONE
        run = self.claim(store, ticket)
        assert change() is Intervention.BUSY
        self.settle(store, ticket, SettledState.COMPLETED, run, self.outcomes[0])
        assert audited == []
        assert change() is Intervention.DONE
        assert [record.outcome for record in audited] == [self.outcomes[0]]
        left = store.get(ticket.id)
        assert left is not None
        assert rules.expired(left) is (verb != "release")
        if verb != "expire":
            assert left.outcome is None
            assert left.digest == (ticket.digest if verb == "release" else b"")
            assert change() is Intervention.ALREADY
            assert self.settle(store, ticket, SettledState.COMPLETED, run, self.outcomes[0]) is False
        other = make_ticket(body=b"{}" if verb == "release" else b"other")
        record = store.claim(other)
        again = rules.Execute(attempt=2 if verb == "release" else 1)
        assert (rules.read(record, other), record.owner, record.outcome) == (again, other.owner, None)
        assert (record.operation == rules.operation_begun_by(ticket)) is (verb == "release")
        assert len(audited) == 1

    def test_released_after_a_crash(self, store: BaseStore) -> None:
        """A crashed record can be released, too: within its retention, with its attempt number, and still bound."""
        ticket, audited = make_ticket(ttl=1000), list[Record]()
        run = self.claim(store, ticket)
        self.elapse(store, ticket.lease + 1)
        assert store.change(ticket.id, released, audit=audited.append) is Intervention.DONE
        assert [(record.owner, record.attempt) for record in audited] == [(ticket.owner, 1)]
        assert self.settle(store, ticket, SettledState.COMPLETED, run, self.outcomes[0]) is False
        freed = self.stored(store, ticket)
        assert (freed.status, freed.attempt, freed.digest) == (Status.FREE, 1, ticket.digest)
        assert freed.operation == rules.operation_begun_by(ticket)
        assert abs((freed.expires_at - freed.created_at).total_seconds() - 1000) < 1
        assert store.claim(make_ticket()).attempt == 2

    @pytest.mark.parametrize("verb", ["release", "expire", "erase"])
    def test_renewed_as_an_operator_intervenes(
        self, store: BaseStore, monkeypatch: pytest.MonkeyPatch, verb: str
    ) -> None:
        """A late owner that renews its lease after the operator's look is still working, and keeps its record."""
        ticket, audited, inner = make_ticket(), list[Record](), innermost(store)
        look = inner.get
        run = self.claim(store, ticket)
        self.elapse(store, ticket.lease + 1)
        renewed: set[UUID] = set()

        def looked(record_id: UUID) -> Record | None:
            record = look(record_id)
            renewed.update(inner.renew([ticket]))
            return record

        monkeypatch.setattr(inner, "get", looked)
        found = store.change(ticket.id, CHANGES[verb], audit=audited.append)
        if not renewed:
            pytest.skip(f"{type(inner).__name__} looks in another way.")
        assert (found, audited) == (Intervention.BUSY, [])
        assert self.settle(store, ticket, SettledState.COMPLETED, run, self.outcomes[0]) is True

    def test_erased_after_a_crash(self, store: BaseStore) -> None:
        """Crashed and expired records can be erased, too."""
        for key, seconds in (("lapsed", 40), ("over", 1100)):
            ticket = make_ticket(key=key, ttl=1000)
            run = self.claim(store, ticket)
            self.elapse(store, seconds)
            if store.get(ticket.id) is None:
                continue  # the server was faster
            assert store.change(ticket.id, erased, audit=lambda _: None) is Intervention.DONE
            assert store.renew([ticket]) == set()
            assert self.settle(store, ticket, SettledState.COMPLETED, run, self.outcomes[0]) is False
            assert store.claim(make_ticket(key=key, body=b"other")).attempt == 1

    def test_expired_after_a_crash(self, store: BaseStore) -> None:
        """The former owner can neither renew nor settle the record."""
        ticket, audited = make_ticket(ttl=1000), list[Record]()
        run = self.claim(store, ticket)
        self.elapse(store, ticket.lease + 1)
        assert store.change(ticket.id, expired_now, audit=audited.append) is Intervention.DONE
        assert store.renew([ticket]) == set()
        assert self.settle(store, ticket, SettledState.COMPLETED, run, self.outcomes[0], ttl=1000) is False
        assert rules.read(store.claim(other := make_ticket(body=b"other")), other) == rules.Execute(attempt=1)

    def test_what_is_not_there(self, store: BaseStore) -> None:
        """A record that was never claimed cannot be settled, looked up, or changed by hand."""
        ticket = make_ticket()
        for leave in (SettledState.COMPLETED, SettledState.FREE, SettledState.BOUND):
            assert self.settle(store, ticket, leave, rules.Execute(attempt=1), self.outcomes[0]) is False
        assert store.get(ticket.id) is None
        assert store.get(uuid4()) is None
        assert store.claim(ticket).attempt == 1


# ------------------------------------------------------------------------------------------------------------ retention

DAY = 86400


class Retention(Contract):
    """Tests of `purge_at`."""

    @pytest.mark.parametrize("how", ["expire", "erase", "own ttl"])
    def test_a_new_life_within_the_retention(self, store: BaseStore, how: str) -> None:
        """After *Expire*, *Erase* or a shorter `ttl`, and a purge, each later operation differs from those before."""
        ticket = make_ticket(ttl=DAY)
        self._end(store, ticket, how)
        self.elapse(store, 100)
        store.purge(limit=100)
        record = store.claim(heir := make_ticket(body=b"other", ttl=DAY))
        assert (record.owner, record.attempt) == (heir.owner, 1)
        assert record.operation == next_operation(rules.operation_begun_by(ticket))
        self._end(store, heir, how)
        self.elapse(store, 100)
        store.purge(limit=100)
        later = store.claim(make_ticket(ttl=DAY))
        assert later.operation == next_operation(record.operation)

    @pytest.mark.parametrize("how", ["expire", "erase", "own ttl"])
    def test_the_end_of_the_retention(self, store: BaseStore, how: str) -> None:
        """A purge deletes the record once the claim's own retention is over."""
        ticket = make_ticket(ttl=DAY)
        self._end(store, ticket, how)
        self.elapse(store, DAY + 10)
        if store.expires_natively:
            record = store.get(ticket.id)
            assert record is None or rules.keep_until(record) <= record.read_at
            return
        assert store.purge(limit=100).count == 1
        assert store.get(ticket.id) is None

    def test_it_is_never_shortened(self, store: BaseStore) -> None:
        """A later life with a shorter retention does not shorten that of an earlier one."""
        self._end(store, make_ticket(ttl=DAY), "expire")
        heir = make_ticket(ttl=50, lease=10)
        taken = store.claim(heir)
        self.complete(store, heir, ttl=20)
        self.elapse(store, 200)
        store.purge(limit=100)
        assert store.claim(make_ticket(ttl=DAY)).operation == next_operation(taken.operation)

    def test_it_is_lengthened(self, store: BaseStore) -> None:
        """A response that is kept for longer than its claim requested is not purged before it expires."""
        ticket = make_ticket(ttl=100)
        self.complete(store, ticket, ttl=DAY)
        self.elapse(store, 1000)
        store.purge(limit=100)
        record = store.claim(make_ticket())
        assert record.outcome == self.outcomes[0]
        assert rules.keep_until(record) >= record.expires_at

    def _end(self, store: BaseStore, ticket: Ticket, how: str) -> None:
        """Complete a call, and end the retention of its response early."""
        self.complete(store, ticket, ttl=None if how in CHANGES else 50)
        if how in CHANGES:
            assert store.change(ticket.id, CHANGES[how], audit=lambda _: None) is Intervention.DONE
