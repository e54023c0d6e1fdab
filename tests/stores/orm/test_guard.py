"""The guard of `atomic`: a row lock in the work's own transaction."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from time import monotonic
from uuid import uuid4

import pytest
from django.db import connections

from django_idempotency import conf
from django_idempotency.core.conclusions import TAKEOVER_LEASE, Ending, WorkResult
from django_idempotency.core.hashing import secret_id
from django_idempotency.core.records import Guarantee, Record, Status, Ticket
from django_idempotency.core.rules import Busy, Execute, Mismatch, Replay
from django_idempotency.errors import OwnershipLost
from django_idempotency.models import IdempotencyRecord
from django_idempotency.runtime.derivation import derive
from django_idempotency.stores.base import Guard
from django_idempotency.stores.orm import ORMStore
from django_idempotency.testing.clock import elapse
from django_idempotency.testing.recording import RecordingStore

from ..helpers import OUTCOME, Call, atomic_ticket, effects, elsewhere, row

pytestmark = pytest.mark.django_db(transaction=True)


def test_first_run_and_replay() -> None:
    """The work runs once; its response and its writes are committed together."""
    first = Call()
    assert first.run() == Execute(attempt=1)
    assert Call().run() == Replay(outcome=OUTCOME, attempt=1)
    assert (effects(), row(first.ticket).get_status_display(), first.listener.events) == (
        1,
        "completed",
        ["claimed", "completed"],
    )


def test_nothing_is_seen_before_commit() -> None:
    """While the owner works, others see its claim, but neither its writes nor its response."""
    call = Call()
    call.open()
    call.work()
    assert elsewhere(lambda: (effects(), row(call.ticket).status)) == (0, Status.RUNNING)
    call.settle()
    assert elsewhere(lambda: (effects(), row(call.ticket).status)) == (1, Status.COMPLETED)


@pytest.mark.parametrize("ttl", [86400, 0], ids=["young", "expired"])
@pytest.mark.parametrize("attempt", ["first run", "takeover"])
def test_a_living_owner_is_never_overtaken(attempt: str, ttl: int) -> None:
    """However late it is, even expired, the row lock shows that the owner is alive, and no call
    waits to find out.
    """
    if attempt == "takeover":
        ORMStore().claim(atomic_ticket(ttl=ttl))
    call = Call(atomic_ticket(ttl=ttl))
    assert isinstance(call.open(), Execute)
    call.work()
    started = monotonic()
    assert elsewhere(lambda: Call(atomic_ticket(ttl=ttl)).run()) == Busy(retry_after=1)
    assert monotonic() - started < 4
    call.settle()
    assert (effects(), call.listener.events[-1]) == (1, "completed")


def test_another_request_meets_a_living_owner() -> None:
    """Mismatch takes precedence over busy, also while the first one runs."""
    call = Call()
    call.open()
    assert elsewhere(lambda: Call(atomic_ticket(body=b"other")).run()) == Mismatch()
    call.settle()


def test_a_dead_owner_is_taken_over() -> None:
    """When its connection ends, its writes and its lock go, and the next one runs."""

    def die() -> None:
        call = Call()
        call.open()
        call.work()
        connections["default"].close()

    elsewhere(die)
    assert effects() == 0
    call = Call()
    assert call.run() == Execute(attempt=2, takeover=True)
    record = row(call.ticket)
    assert (record.owner, record.attempt, record.status, effects()) == (
        call.ticket.owner,
        2,
        Status.COMPLETED,
        1,
    )
    assert call.listener.events == ["taken_over", "completed"]


def test_within_the_claim_lease() -> None:
    """Between claim and lock a lease protects the owner, which has no lock yet."""
    ORMStore().claim(atomic_ticket(lease=1))
    assert Call().run() == Busy(retry_after=1)


def died(call: Call) -> None:
    """End a call as the death of its process does: nothing is settled, and its transaction is
    rolled back.
    """
    call.operation.close()


@pytest.mark.parametrize("before", ["crashed", "failed", "refused", "expired"])
def test_a_takeover_is_written_before_its_work(before: str) -> None:
    """If it dies, too, the next attempt knows of it: by its number, its operation, and the request
    that it binds.
    """
    secret = secret_id(conf.derive_secret())
    first = Call(atomic_ticket(secret_id=secret))
    first.open()
    endings = {
        "crashed": None,
        "failed": WorkResult.FAILED,
        "refused": WorkResult.DROPPED,
        "expired": WorkResult.KEPT,
    }
    if (ended := endings[before]) is None:
        died(first)
    else:
        first.settle(ended)
    if before == "expired":
        elapse(timedelta(days=2))
    second = Call(atomic_ticket(secret_id=secret))
    assert isinstance(second.open(), Execute)
    attempt = 1 if before == "expired" else 2
    seen = elsewhere(lambda: row(second.ticket))
    assert (seen.owner, seen.attempt, seen.status) == (second.ticket.owner, attempt, Status.RUNNING)
    derived = derive(second.operation, "bank")
    died(second)
    elapse(timedelta(seconds=TAKEOVER_LEASE))
    assert Call(atomic_ticket(body=b"other")).run() == Mismatch()
    third = Call(atomic_ticket(secret_id=secret))
    assert third.open() == Execute(attempt=attempt + 1, takeover=True)
    assert (third.operation.may_have_acted, third.operation.claim_is_durable) == (True, True)
    assert derive(third.operation, "bank") == derived
    third.settle()


def test_a_failed_takeover_counts() -> None:
    """After a failed takeover the next run is the third attempt, and the body still binds."""
    ORMStore().claim(atomic_ticket())
    call = Call()
    assert call.run(WorkResult.FAILED) == Execute(attempt=2, takeover=True)
    assert (row(call.ticket).status, effects(), call.listener.events) == (
        Status.FREE,
        0,
        ["taken_over", "released"],
    )
    assert Call(atomic_ticket(body=b"other")).run() == Mismatch()
    assert Call().run() == Execute(attempt=3)


def test_a_refusal_frees_the_key() -> None:
    """After a refusal a corrected body runs under the same key."""
    assert Call().run(WorkResult.DROPPED) == Execute(attempt=1)
    corrected = Call(atomic_ticket(body=b"corrected"))
    assert corrected.run() == Execute(attempt=2)
    assert Call().run() == Mismatch()  # and from now on the new body binds
    assert effects() == 2  # the writes of the refusal were committed


def test_a_new_life() -> None:
    """After its retention a key starts again: attempt 1, its own times, nothing of the old
    response.
    """
    old = Call(atomic_ticket(method="PUT", secret_id="01d"))
    old.run()
    elapse(timedelta(days=2))
    new = Call(atomic_ticket(body=b"other"))
    assert new.run(WorkResult.FAILED) == Execute(attempt=1)
    record = row(new.ticket)
    assert (record.attempt, record.method, record.secret_id) == (
        1,
        new.ticket.method,
        new.ticket.secret_id,
    )
    assert (record.response_status, record.response_headers, record.response_body) == (
        None,
        "",
        None,
    )
    assert record.expires_at - record.created_at > timedelta(hours=23)
    assert record.completed_at is None
    assert Call(atomic_ticket(body=b"other")).run() == Execute(attempt=2)


def test_a_key_inside_its_own_work() -> None:
    """The same key inside its own view is busy at once, as a lock does not stop its own
    transaction.
    """
    outer = Call()
    outer.open()
    outer.work()
    assert Call().run() == Busy(retry_after=1)
    outer.settle()
    assert (effects(), row(outer.ticket).status) == (1, Status.COMPLETED)
    assert Call().run() == Replay(outcome=OUTCOME, attempt=1)


def test_another_key_inside_the_work() -> None:
    """Another key in the view joins its transaction: both are kept, or neither is."""
    for ended, remembered in ((WorkResult.FAILED, 0), (WorkResult.KEPT, 2)):
        outer, inner = Call(), Call(atomic_ticket(key="inner"))
        outer.open()
        assert isinstance(inner.run(), Execute)
        outer.work()
        outer.settle(ended)
        assert effects() == remembered
        assert IdempotencyRecord.objects.filter(status=Status.COMPLETED).count() == remembered


def test_the_row_is_deleted_under_us() -> None:
    """Without its record the work is not committed."""
    call = Call()
    call.open()
    call.work()
    # in our own transaction: the lock keeps all others out
    IdempotencyRecord.objects.all().delete()
    with pytest.raises(OwnershipLost):
        call.settle()
    assert (effects(), call.listener.events) == (0, ["claimed", "lost"])


def test_overtaken_under_the_lock() -> None:
    """The settle checks the owner, in spite of the lock."""
    call = Call()
    call.open()
    call.work()
    IdempotencyRecord.objects.update(owner=uuid4())
    with pytest.raises(OwnershipLost):
        call.settle()
    assert effects() == 0


class Delayed(RecordingStore):
    """Lets something happen between the first claim and its guard."""

    def guard(self, ticket: Ticket, *, takeover: bool = False, claimed: Record | None = None):
        if self.verbs == ["claim"]:
            elsewhere(self.meanwhile)
        return super().guard(ticket, takeover=takeover, claimed=claimed)

    def meanwhile(self) -> None:
        raise NotImplementedError


def test_overtaken_between_claim_and_guard() -> None:
    """A call delayed between claim and lock finds the new owner's response, and runs nothing."""
    store = Delayed(ORMStore())
    store.meanwhile = lambda: assert_runs(Call())  # type: ignore[method-assign]
    assert Call(store=store).run() == Replay(outcome=OUTCOME, attempt=2)
    assert (effects(), store.verbs) == (1, ["claim", "guard", "claim"])


def assert_runs(call: Call) -> None:
    assert isinstance(call.run(), Execute)


def delete_all() -> None:
    IdempotencyRecord.objects.all().delete()


def test_purged_between_claim_and_guard() -> None:
    """A claim whose row is gone is made again."""
    store = Delayed(ORMStore())
    store.meanwhile = delete_all  # type: ignore[method-assign]
    assert Call(store=store).run() == Execute(attempt=1)
    assert (effects(), store.verbs) == (1, ["claim", "guard", "claim", "guard", "commit"])


class Interrupted(RecordingStore):
    """Lets something happen between the rollback of failed work and the settle of its record."""

    meanwhile: Callable[[], object]

    def guard(
        self, ticket: Ticket, *, takeover: bool = False, claimed: Record | None = None
    ) -> AbstractContextManager[Guard]:
        if self.verbs.count("guard") == 1:
            elsewhere(self.meanwhile)
        return super().guard(ticket, takeover=takeover, claimed=claimed)


@pytest.mark.parametrize("how", ["failed", "gave its writes up"])
def test_a_late_owner_is_faster_than_the_end_of_a_takeover(how: str) -> None:
    """A late owner that resumes during the takeover's rollback finds that the record is not its
    own, and does not run.
    """
    late = atomic_ticket()
    ORMStore().claim(late)
    store = Interrupted(ORMStore())
    resumed: list[object] = []
    store.meanwhile = lambda: resumed.append(Call(late).run())
    call = Call(store=store)
    assert call.open() == Execute(attempt=2, takeover=True)
    call.work()
    call.operation.set_rollback()
    given_up = OUTCOME._replace(status=422)
    if how == "failed":
        ending = Ending(WorkResult.FAILED)
    else:
        ending = Ending(WorkResult.KEPT, given_up, succeeded=True)
    call.operation.settle(ending)
    assert ([type(verdict) for verdict in resumed], effects()) == ([Busy], 0)
    assert call.listener.events == ["taken_over", "released"]
    assert isinstance(Call().run(), Execute)


def test_a_lease_beside_atomic() -> None:
    """A `lease` ticket on an `atomic` record waits for its lease and is fenced like any other."""
    first = atomic_ticket(lease=30)
    ORMStore().claim(first)
    leased = first._replace(owner=uuid4(), guarantee=Guarantee.LEASE)
    assert isinstance(Call(leased).run(), Busy)
    elapse(31)
    assert Call(leased).run() == Execute(attempt=2, takeover=True)
