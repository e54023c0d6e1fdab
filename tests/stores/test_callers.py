"""Inside a caller's open transaction: an outer atomic(), or a test case."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing, nullcontext
from functools import partial
from time import monotonic

import pytest
from django.db import DatabaseError, connection, transaction

from django_idempotency.core.conclusions import WorkResult
from django_idempotency.core.records import Status
from django_idempotency.core.rules import Busy, Execute, Replay
from django_idempotency.errors import InProgress, LostRace, OwnershipLost, TransactionLost
from django_idempotency.models import IdempotencyRecord
from django_idempotency.stores.orm import ORMStore
from django_idempotency.testing.tickets import make_ticket

from .helpers import OUTCOME, Call, atomic_ticket, effects, elsewhere, not_sqlite, together

pytestmark = pytest.mark.django_db(transaction=True)


def lock_timeout() -> str | None:
    if connection.vendor != "postgresql":
        return None
    with connection.cursor() as cursor:
        cursor.execute("SHOW lock_timeout")
        return str(cursor.fetchone()[0])


@pytest.mark.parametrize("make", [make_ticket, atomic_ticket], ids=["lease", "atomic"])
def test_rolled_back_by_the_caller(make: type) -> None:
    """What the caller rolls back is undone, effect and record together; what it commits is kept."""
    with transaction.atomic():
        assert Call(make()).run() == Execute(attempt=1)
        assert Call(make()).run() == Replay(outcome=OUTCOME, attempt=1)
        transaction.set_rollback(True)
    assert (effects(), IdempotencyRecord.objects.count()) == (0, 0)
    with transaction.atomic():
        assert Call(make()).run() == Execute(attempt=1)
    assert (effects(), IdempotencyRecord.objects.get().status) == (1, Status.COMPLETED)


def test_a_failure_ends_only_its_own_part() -> None:
    """A failing inner call undoes its own writes, and nothing of its caller's."""
    with transaction.atomic():
        Call(atomic_ticket(key="before")).run()
        Call().run(WorkResult.FAILED)
        assert effects() == 1
        assert Call().run() == Execute(attempt=2)
    assert effects() == 2


@pytest.mark.parametrize("replaced", [False, True], ids=["gone", "replaced"])
@pytest.mark.parametrize("how", ["rollback", "commit"])
def test_the_callers_transaction_is_gone(how: str, replaced: bool) -> None:
    """If it ended outside Django, the call's part ended, too; a caller that continues commits
    nothing more.
    """
    call = Call()
    with transaction.atomic():
        call.open()
        call.work()
        getattr(connection.connection, how)()
        if replaced:
            with closing(connection.connection.cursor()) as cursor:  # past Django, and the guard
                cursor.execute("BEGIN")
        with pytest.raises(TransactionLost):
            call.settle()
        with pytest.raises(DatabaseError):
            Call(atomic_ticket(key="after")).work()
    assert effects() == (how == "commit")
    assert not IdempotencyRecord.objects.filter(status=Status.COMPLETED).exists()


def test_back_to_before_the_call() -> None:
    """A call that returns to a savepoint of its caller has lost its own claim, and is not
    remembered.
    """
    with transaction.atomic():
        before = connection.savepoint()
        assert before is not None
        call = Call()
        call.open()
        call.work()
        connection.savepoint_rollback(before)
        with pytest.raises((TransactionLost, OwnershipLost)):
            call.settle()
    assert (effects(), IdempotencyRecord.objects.count()) == (0, 0)


def test_a_call_in_a_call_loses_the_transaction() -> None:
    """Both calls share the transaction, so neither is remembered."""
    outer, inner = Call(), Call(atomic_ticket(key="inner"))
    outer.open()
    outer.work()
    inner.open()
    connection.connection.rollback()
    for call in (inner, outer):
        with pytest.raises(TransactionLost):
            call.settle()
    assert effects() == 0
    assert not IdempotencyRecord.objects.filter(status=Status.COMPLETED).exists()
    assert Call().run() == Execute(attempt=2)


@not_sqlite
@pytest.mark.parametrize("make", [make_ticket, atomic_ticket], ids=["lease", "atomic"])
def test_others_do_not_wait_for_the_caller(make: type) -> None:
    """While the caller's transaction is open its outcome is unknown: others are busy, within a
    second.
    """
    with transaction.atomic():
        assert Call(make()).run() == Execute(attempt=1)
        started = monotonic()
        assert elsewhere(lambda: Call(make()).run()) == Busy(retry_after=1)
        assert monotonic() - started < 4
    assert elsewhere(lambda: Call(make()).run()) == Replay(outcome=OUTCOME, attempt=1)


@not_sqlite
@pytest.mark.parametrize("inside", [False, True], ids=["some in transactions", "in transactions"])
def test_many_duplicates(inside: bool) -> None:
    """Of those that meet each other, one is claimed; the others are busy, and wait for a second at
    most, although its transaction stays open.
    """
    over = threading.Event()
    waited: list[float] = []

    def claim(keeps: bool) -> bool:
        started = monotonic()
        try:
            with transaction.atomic() if keeps else nullcontext():
                ticket = atomic_ticket(lease=30)
                is_owner = ORMStore().claim(ticket).owner == ticket.owner
                answered(started)
                if is_owner:
                    over.wait(10)
                return is_owner
        except (InProgress, LostRace):
            answered(started)
            return False

    def answered(started: float) -> None:
        waited.append(monotonic() - started)
        if len(waited) == len(claims):
            over.set()

    claims: list[Callable[[], bool]] = [
        partial(claim, inside or number % 2 == 0) for number in range(12)
    ]
    assert sum(together(claims)) == 1
    assert max(waited) < 2.5


@not_sqlite
def test_two_callers() -> None:
    """A caller that meets another's open claim gives up after a second, and its own transaction
    continues unharmed.
    """

    def second() -> tuple[str | None, str | None, float]:
        with transaction.atomic():
            Call(atomic_ticket(key="mine")).run()
            before, started = lock_timeout(), monotonic()
            with pytest.raises(InProgress):  # an owner of the key is in the way
                ORMStore().claim(atomic_ticket())
            waited = monotonic() - started
            Call(atomic_ticket(key="mine, too")).run()
            return before, lock_timeout(), waited

    with transaction.atomic():
        Call().run()
        before, after, waited = elsewhere(second)
        transaction.set_rollback(True)
    assert (before, waited < 1.5) == (after, True)
    assert effects() == 2


def test_settings_end_with_the_claim() -> None:
    """A claim leaves no setting in the caller's transaction, nor in the connection."""
    with transaction.atomic():
        before = lock_timeout()
        Call().run()
        Call().run()
        assert lock_timeout() == before
    Call(atomic_ticket(key="other")).run()
    assert lock_timeout() == before


@pytest.mark.skipif("connection.vendor != 'postgresql'", reason="The setting is PostgreSQL's")
def test_the_callers_own_lock_timeout_returns() -> None:
    """The caller's own setting for its transaction is restored after the claim."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '7s'")
        Call().run()
        assert lock_timeout() == "7s"


@not_sqlite
def test_a_callers_old_snapshot() -> None:
    """A key completed after the caller's snapshot was taken is replayed, not run again."""
    with connection.cursor() as cursor:
        if connection.vendor == "mysql":
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    with transaction.atomic():
        assert effects() == 0  # the snapshot
        elsewhere(lambda: Call().run())
        assert Call().run() == Replay(outcome=OUTCOME, attempt=1)
    assert effects() == 1


def test_on_commit_waits_for_the_caller() -> None:
    """A callback of the work runs when the caller commits, and not before."""
    seen: list[int] = []
    with transaction.atomic():
        call = Call()
        call.open()
        transaction.on_commit(lambda: seen.append(1))
        call.settle()
        assert seen == []
    assert seen == [1]
