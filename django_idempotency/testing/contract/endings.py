"""How work ends: settled with its response, released, or too late; how long its record is kept; and
when it is forgotten.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from ...core import rules
from ...core.at_rest import ERASED
from ...core.conclusions import SettledState
from ...core.failures import Failure, failed_with, failure_in, failure_of
from ...core.hashing import first_operation, next_operation
from ...core.interventions import CHANGES, Intervention, forgotten
from ...core.records import (
    CANCELLATION,
    MISSING,
    Guarantee,
    Outcome,
    OutcomeKind,
    Record,
    Status,
    Ticket,
)
from ...core.rules import Execute, Replay
from ...stores.base import BaseStore
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
            looked = self.known(store, ticket)
            assert looked.outcome == outcome

    def test_settling_keeps_the_deadline(self, store: BaseStore) -> None:
        """The claim fixes the expiry."""
        ticket = make_ticket()
        claimed = store.claim(ticket)
        self.elapse(store, 10)
        self.complete(store, ticket)
        left = (self.stored(store, ticket).expires_at - claimed.expires_at).total_seconds()
        # Depends on whether elapse() moves the clock or the records.
        assert abs(left) < 1 or abs(left + 10) < 1

    def test_a_response_with_its_own_ttl(self, store: BaseStore) -> None:
        """A response may be kept for longer or shorter than its claim requested."""
        for ttl in (60, 1_000_000):
            ticket = make_ticket(key=f"{ttl}")
            self.complete(store, ticket, ttl=ttl)
            record = self.stored(store, ticket)
            assert abs((record.expires_at - record.read_at).total_seconds() - ttl) < 1

    def test_a_new_life_that_is_settled(self, store: BaseStore) -> None:
        """A settle that begins a new life, as with `atomic`, writes its operation; any other leaves
        it unchanged.
        """
        old = make_ticket()
        new = make_ticket()
        self.complete(store, old)
        self.elapse(store, old.ttl + 1)
        expired = self.stored(store, old)
        run = rules.Execute(attempt=1, new_life=True)
        assert self.settle(store, new, SettledState.BOUND, run, fence=expired) is True
        assert self.stored(store, new).operation == rules.operation_of(expired, run)
        later = make_ticket()
        self.complete(store, later)
        assert self.stored(store, later).operation == rules.operation_of(expired, run)

    def test_settled_twice(self, store: BaseStore) -> None:
        """An owner whose first settle got no response settles again; the time of completion does
        not change.
        """
        ticket = make_ticket()
        run = self.claim(store, ticket)
        assert self.done(store, ticket, run) is True
        self.elapse(store, 100)
        assert self.done(store, ticket, run) is True
        record = self.stored(store, ticket)
        assert record.completed_at is not None
        assert abs((record.read_at - record.completed_at).total_seconds() - 100) < 1

    # ----------------------------------------------------------------------------------------- late

    @pytest.mark.parametrize("ttl", [86400, 10], ids=["in the same life", "in a new one"])
    def test_a_late_owner(self, store: BaseStore, ttl: int) -> None:
        """An owner that was overtaken cannot settle."""
        first = make_ticket(lease=5, ttl=ttl)
        second = make_ticket()
        run = self.claim(store, first)
        self.elapse(store, 11)
        assert store.claim(second).owner == second.owner
        for completed in (False, True):
            if completed:
                assert self.complete(store, second) is True
            for leave in (SettledState.COMPLETED, SettledState.FREE, SettledState.BOUND):
                assert self.settle(store, first, leave, run, self.outcomes[1]) is False
        record = self.stored(store, second)
        assert (record.owner, record.outcome) == (second.owner, self.outcomes[0])

    def test_late_but_not_overtaken(self, store: BaseStore) -> None:
        """An owner can still settle after its lease has lapsed, if the record was not taken
        over.
        """
        ticket, run = self.lapsed(store)
        assert self.done(store, ticket, run) is True
        assert self.stored(store, ticket).status is Status.COMPLETED

    # -------------------------------------------------------------------------------------- release

    def test_released_with_a_failure(self, store: BaseStore) -> None:
        """A release keeps how the attempt failed, in the trip that it takes anyway, until the next
        claim.
        """
        failed = failed_with(ValueError("secret"), at=NOW)
        ticket = make_ticket()
        self.leave(store, ticket, SettledState.BOUND, failed)
        record = self.stored(store, ticket)
        assert (record.status, record.outcome, record.completed_at) == (Status.FREE, failed, None)
        assert failure_of(record) == Failure(500, "ValueError", NOW)
        again = make_ticket()
        assert self.claim(store, again).attempt == 2
        claimed = self.known(store, ticket)
        assert (claimed.status, claimed.outcome) == (Status.RUNNING, None)
        self.elapse(store, 100)
        assert self.done(store, again, Execute(attempt=2))
        done = self.stored(store, ticket)
        assert (done.outcome, done.completed_at is None) == (self.outcomes[0], False)

    def test_a_failure_that_is_completed_where_it_stands(self, store: BaseStore) -> None:
        """With `atomic` nothing is written before the settle: the response then replaces the
        failure, and has its own time.
        """
        failed = failed_with(None, at=NOW, status=503)
        ticket = make_ticket()
        self.leave(store, ticket, SettledState.BOUND, failed)
        found = self.stored(store, ticket)
        self.elapse(store, 100)
        again = make_ticket(guarantee=Guarantee.ATOMIC)
        assert self.done(store, again, Execute(attempt=2), fence=found)
        done = self.known(store, ticket)
        assert done.outcome == self.outcomes[0]
        assert done.completed_at is not None
        assert (done.completed_at - done.created_at).total_seconds() == pytest.approx(100, abs=5)

    def test_an_erased_failure(self, store: BaseStore) -> None:
        """What is erased or forgotten by hand notes nothing of a failure."""
        for name, status in (("erase", Status.FREE), ("forget", Status.COMPLETED)):
            ticket = make_ticket(key=name)
            self.leave(store, ticket, SettledState.BOUND, failed_with(ValueError(), at=NOW))
            assert (
                store.change(ticket.id, CHANGES[name], audit=list[Record]().append)
                is Intervention.DONE
            )
            record = self.known(store, ticket)
            assert (record.status, failure_in(record.outcome)) == (status, None)

    def test_released_and_unbound(self, store: BaseStore) -> None:
        """After a refusal, a corrected request takes the key and binds it again."""
        self.leave(store, make_ticket(), SettledState.FREE)
        corrected = make_ticket(body=b"corrected")
        record = store.claim(corrected)
        assert (record.owner, record.attempt, record.digest) == (
            corrected.owner,
            2,
            corrected.digest,
        )

    # ------------------------------------------------------------------------------- by an operator

    @pytest.mark.parametrize("verb", ["release", "expire", "erase"])
    def test_by_hand(self, store: BaseStore, verb: str) -> None:
        """It needs a record, and no live lease.

        What was there is audited once, and its owner cannot settle any more.
        """
        ticket = make_ticket()
        audited = list[Record]()

        def change() -> Intervention:
            return store.change(ticket.id, CHANGES[verb], audit=audited.append)

        assert change() is Intervention.GONE
        run = self.claim(store, ticket)
        assert change() is Intervention.BUSY
        self.done(store, ticket, run)
        assert audited == []
        assert change() is Intervention.DONE
        assert [record.outcome for record in audited] == [self.outcomes[0]]
        left = self.known(store, ticket)
        assert rules.expired(left) is (verb != "release")
        if verb != "expire":
            assert left.outcome is None
            assert left.digest == (ticket.digest if verb == "release" else b"")
            assert change() is Intervention.ALREADY
            assert self.done(store, ticket, run) is False
        other = make_ticket(body=b"{}" if verb == "release" else b"other")
        record = store.claim(other)
        again = rules.Execute(attempt=2 if verb == "release" else 1)
        assert (rules.read(record, other), record.owner, record.outcome) == (
            again,
            other.owner,
            None,
        )
        assert (record.operation == first_operation(ticket)) is (verb == "release")
        assert len(audited) == 1

    @pytest.mark.parametrize(
        ("verb", "seconds"),
        [("release", 31), ("expire", 31), ("erase", 31), ("erase", 1100)],
        ids=str,
    )
    def test_by_hand_after_a_crash(self, store: BaseStore, verb: str, seconds: int) -> None:
        """A crashed record can be changed, too, an expired one also be erased; its former owner can
        do nothing more.
        """
        ticket = make_ticket(ttl=1000)
        audited = list[Record]()
        run = self.claim(store, ticket)
        self.elapse(store, seconds)
        if store.get(ticket.id) is None:
            return  # the server was faster
        assert store.change(ticket.id, CHANGES[verb], audit=audited.append) is Intervention.DONE
        assert [(record.owner, record.attempt) for record in audited] == [(ticket.owner, 1)]
        assert store.renew([ticket]) == set()
        assert self.done(store, ticket, run, ttl=1000) is False
        if verb == "release":  # within its retention, with its attempt, and still bound
            freed = self.stored(store, ticket)
            assert (freed.status, freed.attempt, freed.digest) == (Status.FREE, 1, ticket.digest)
            assert freed.operation == first_operation(ticket)
            assert abs((freed.expires_at - freed.created_at).total_seconds() - 1000) < 1
        again = make_ticket(body=b"{}" if verb == "release" else b"other")
        assert self.claim(store, again) == Execute(attempt=2 if verb == "release" else 1)

    @pytest.mark.parametrize("verb", ["release", "expire", "erase"])
    def test_renewed_as_an_operator_intervenes(
        self, store: BaseStore, monkeypatch: pytest.MonkeyPatch, verb: str
    ) -> None:
        """A late owner that renews its lease after the operator's look is still working, and keeps
        its record.
        """
        ticket, run = self.lapsed(store)
        found = self.changed_while(store, monkeypatch, ticket, verb, lambda: store.renew([ticket]))
        assert found == (Intervention.BUSY, [])
        assert self.done(store, ticket, run) is True

    def test_what_is_not_there(self, store: BaseStore) -> None:
        """A record that was never claimed cannot be settled, looked up, or changed by hand."""
        ticket = make_ticket()
        for leave in (SettledState.COMPLETED, SettledState.FREE, SettledState.BOUND):
            assert (
                self.settle(store, ticket, leave, rules.Execute(attempt=1), self.outcomes[0])
                is False
            )
        assert store.get(ticket.id) is None
        assert store.get(uuid4()) is None
        assert store.claim(ticket).attempt == 1


# ---------------------------------------------------------------------------------------- retention

DAY = 86400


class Retention(Contract):
    """Tests of `purge_at`."""

    @pytest.mark.parametrize("how", ["expire", "erase", "own ttl"])
    def test_a_new_life_within_the_retention(self, store: BaseStore, how: str) -> None:
        """After *Expire*, *Erase* or a shorter `ttl`, and a purge, each later operation differs
        from those before.
        """
        ticket = make_ticket(ttl=DAY)
        self._end(store, ticket, how)
        self.elapse(store, 100)
        store.purge(limit=100)
        record = store.claim(heir := make_ticket(body=b"other", ttl=DAY))
        assert (record.owner, record.attempt) == (heir.owner, 1)
        assert record.operation == next_operation(first_operation(ticket))
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
        """A response that is kept for longer than its claim requested is not purged before it
        expires.
        """
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


# ---------------------------------------------------------------------------------------- forgotten

#: What must be gone: scope, key, path, request id, body.
_SECRETS = ("who-7f3a", "key-7f3a", "path-7f3a", "request-7f3a", "body-7f3a")


def _ticket(**given: Any) -> Ticket:
    scope, key, path, request_id, _ = _SECRETS
    return make_ticket(
        **{"scope": scope, "key": key, "path": f"/{path}/", "request_id": request_id, **given}
    )


def _unread(_: Record) -> None:
    """An audit that nobody reads."""


def _unwanted(record: Record) -> None:
    pytest.fail(f"{record.id} was changed")


class Forgetting(Contract):
    """Tests of `forget`."""

    def _complete(self, store: BaseStore, ticket: Ticket) -> bool:
        outcome = Outcome(201, (("Location", _SECRETS[-1]),), _SECRETS[-1].encode())
        return self.leave(store, ticket, SettledState.COMPLETED, outcome)

    def _assert_used(self, store: BaseStore, status: int) -> None:
        """A retry finds a finished record without a response, whatever it asks for, and nothing of
        it is known.
        """
        for retry in (_ticket(), _ticket(digest=b"another".ljust(32))):
            record = store.claim(retry)
            verdict = rules.read(record, retry)
            assert isinstance(verdict, Replay)
            assert (verdict.outcome.status, verdict.outcome.body) == (status, MISSING)
            assert (record.scope, record.key, record.digest) == (ERASED, ERASED, b"")
            assert not [secret for secret in _SECRETS if secret in repr(record)]

    def test_forgotten(self, store: BaseStore) -> None:
        """Of a finished record the id, the status and the times stay, also if its settle is
        repeated; what it was is audited.
        """
        ticket = _ticket()
        audited = list[Record]()
        assert store.change(ticket.id, forgotten, audit=_unwanted) is Intervention.GONE
        self._complete(store, ticket)
        before = self.stored(store, ticket)
        assert store.change(ticket.id, forgotten, audit=audited.append) is Intervention.DONE
        assert [record.scope for record in audited] == [ticket.scope]
        self._assert_used(store, 201)
        after = self.known(store, ticket)
        same = ("id", "status", "attempt", "operation", "guarantee", "method")
        assert {name: getattr(after, name) for name in same} == {
            name: getattr(before, name) for name in same
        }
        assert after.owner != before.owner
        # `before` may be a copy, whose deadlines come a little early.
        for name in (
            "expires_at",
            "purge_at",
        ):
            assert abs((getattr(after, name) - getattr(before, name)).total_seconds()) < 1
        assert store.change(ticket.id, forgotten, audit=_unwanted) is Intervention.ALREADY
        assert not self.done(store, ticket, Execute(attempt=1))
        self._assert_used(store, 201)

    def test_forgotten_when_free(self, store: BaseStore) -> None:
        """A released key never runs again either: an earlier attempt may have had an effect."""
        ticket = _ticket()
        self.leave(store, ticket, SettledState.BOUND)
        assert store.change(ticket.id, forgotten, audit=_unread) is Intervention.DONE
        self._assert_used(store, 410)

    def test_not_forgotten_while_running(self, store: BaseStore) -> None:
        """The owner of a running record will write to it, also one whose lease has ended: it is
        left as it is.
        """
        ticket = _ticket()
        store.claim(ticket)
        for seconds in (0, ticket.lease + 1):
            self.elapse(store, seconds)
            assert store.change(ticket.id, forgotten, audit=_unwanted) is Intervention.BUSY
        record = self.known(store, ticket)
        assert (record.scope, record.key, record.owner) == (ticket.scope, ticket.key, ticket.owner)
        assert self.done(store, ticket, Execute(attempt=1))

    def test_marks_stay(self, store: BaseStore) -> None:
        """A held record waits for a person; a cancelled one is still known to be cancelled."""
        held = _ticket(key="held")
        cancelled = _ticket()
        self.leave(store, held, SettledState.COMPLETED, OutcomeKind.HELD.outcome())
        self.leave(store, cancelled, SettledState.COMPLETED, CANCELLATION)
        assert store.change(held.id, forgotten, audit=_unwanted) is Intervention.BUSY
        assert store.change(cancelled.id, forgotten, audit=_unread) is Intervention.DONE
        record = self.known(store, cancelled)
        assert (record.outcome, record.scope) == (CANCELLATION, ERASED)

    @pytest.mark.parametrize("ends", ["retention", "expire", "release"])
    def test_the_next_life_of_a_forgotten_key(self, store: BaseStore, ends: str) -> None:
        """When it is over, a request runs as a first one, and its record says again whose it is."""
        ticket = _ticket(ttl=60)
        self._complete(store, ticket)
        store.change(ticket.id, forgotten, audit=_unread)
        if ends == "retention":
            self.elapse(store, 61)
        else:
            assert store.change(ticket.id, CHANGES[ends], audit=_unread) is Intervention.DONE
        again = _ticket(owner=uuid4())
        assert self._complete(store, again)
        record = self.known(store, again)
        assert (record.scope, record.key, record.path) == (again.scope, again.key, again.path)
