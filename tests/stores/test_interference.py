"""What a view, a receiver or a setting may do to the guard's transaction, and which promises still
hold.
"""

from __future__ import annotations

import gc
import traceback
import weakref
from collections.abc import Callable
from contextlib import nullcontext, suppress
from contextvars import copy_context
from typing import Any
from uuid import uuid4

import pytest
from django.db import DatabaseError, close_old_connections, connection, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

from django_idempotency.core.conclusions import WorkResult
from django_idempotency.core.records import Guarantee, Settlement, Status, Ticket
from django_idempotency.core.rules import Busy, Execute, Replay
from django_idempotency.engine.operation import AtomicOperation, Operation
from django_idempotency.errors import (
    ConfigurationError,
    DurableInsideGuard,
    ImplicitCommit,
    LostRace,
    StoreUnavailable,
)
from django_idempotency.instrumentation.observer import Observer
from django_idempotency.models import IdempotencyRecord
from django_idempotency.signals import claimed
from django_idempotency.stores.base import Guard
from django_idempotency.stores.orm import ORMStore
from django_idempotency.stores.orm.guard import ACTIVE_GUARDS
from django_idempotency.testing.tickets import make_ticket
from testproject.payments.models import Effect

from .helpers import (
    OUTCOME,
    Call,
    atomic_ticket,
    connection_id,
    effects,
    elsewhere,
    kill,
    not_sqlite,
    row,
)

pytestmark = pytest.mark.django_db(transaction=True)

mysql_only = pytest.mark.skipif(
    "connection.vendor != 'mysql'", reason="MySQL and MariaDB commit implicitly"
)


def assert_nothing_held() -> None:
    assert (connection.in_atomic_block, ACTIVE_GUARDS.get()) == (False, frozenset())


class Cut(BaseException):
    """Like gevent's timeouts and SystemExit, it is not an Exception."""


# ----------------------------------------------------------------------------------------- the view


def test_a_view_that_connects_anew() -> None:
    """Its transaction went with the old connection: no response is remembered without its
    writes.
    """
    call = Call()
    call.open()
    call.work()
    connection.close()
    connection.connect()
    with pytest.raises(StoreUnavailable):
        call.settle()
    assert (row(call.ticket).status, effects(), call.listener.events) == (
        Status.FREE,
        0,
        ["claimed", "released"],
    )
    assert_nothing_held()


@pytest.mark.parametrize("max_age", [0, 600, None])
def test_old_connections_are_closed_in_the_work(
    monkeypatch: pytest.MonkeyPatch, max_age: int | None
) -> None:
    """Without a guard `close_old_connections()` harms no view, so in a guard it leaves a connection
    that works.
    """
    connection.close()
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", max_age)
    call = Call()
    call.open()
    call.work()
    close_old_connections()
    # What a view makes of it is as the settings say.
    assert connection.copy().settings_dict["AUTOCOMMIT"] is True
    call.work()
    call.settle()
    assert (effects(), row(call.ticket).status) == (2, Status.COMPLETED)
    close_old_connections()
    assert (connection.connection is None) is (max_age == 0)  # its age counts again


@not_sqlite
def test_a_broken_connection_is_closed_in_the_work() -> None:
    """Its writes are gone, so the response is not kept."""
    call = Call()
    call.open()
    call.work()
    kill(connection_id())
    with pytest.raises(DatabaseError):
        call.work()
    close_old_connections()
    with pytest.raises(StoreUnavailable):
        call.settle()
    assert (effects(), row(call.ticket).status) == (0, Status.FREE)


@pytest.mark.parametrize("inside", [False, True], ids=["outermost", "in the caller's"])
def test_a_durable_block_whose_error_is_swallowed(inside: bool) -> None:
    """A task that runs at once cannot commit, and says so to nobody: a success is not stored."""
    with transaction.atomic() if inside else nullcontext():
        call = Call()
        call.open()
        call.work()
        with suppress(Exception), transaction.atomic(durable=True):
            call.work()
        with pytest.raises(DurableInsideGuard):
            call.settle()
        assert Call().run() == Execute(attempt=2)
    assert effects() == 1


def test_a_durable_block_in_a_block_of_the_work() -> None:
    """It fails without us, too, so what the work makes of that is its response."""
    call = Call()
    call.open()
    with transaction.atomic(), pytest.raises(RuntimeError), transaction.atomic(durable=True):
        pass
    call.settle()
    assert row(call.ticket).status == Status.COMPLETED


def test_a_context_that_outlives_the_guard() -> None:
    """Code that outlives the guard with its context may call again: nothing is held any more."""
    call = Call()
    call.open()
    inside = copy_context()
    again = Call(ticket=call.ticket._replace(owner=uuid4()))
    assert isinstance(inside.run(again.run), Busy)
    call.settle(WorkResult.FAILED)
    assert inside.run(again.run) == Execute(attempt=2)
    assert row(call.ticket).status == Status.COMPLETED
    assert_nothing_held()


@mysql_only
@pytest.mark.parametrize(
    "sql", ["ANALYZE TABLE testproject_payments_effect", " truncate table x", "COMMIT"]
)
def test_a_statement_that_commits(sql: str) -> None:
    """It would end the guard and keep half of the work, so it is refused before it runs."""
    call = Call()
    call.open()
    call.work()
    with pytest.raises(ImplicitCommit), connection.cursor() as cursor:
        cursor.execute(sql)
    with pytest.raises(ImplicitCommit):  # although the view has handled the error
        call.settle()
    assert (effects(), row(call.ticket).status) == (0, Status.FREE)


@pytest.mark.parametrize(
    "sql", ["COMMIT", " rollback", "-- of the report\nCOMMIT;", "/* report */ END"]
)
def test_the_transaction_is_ended_by_hand(sql: str) -> None:
    """It would release the key's lock and keep half of the work, on every database, so it is
    refused before it runs.
    """
    if connection.vendor == "mysql" and sql.endswith("END"):
        pytest.skip("MySQL does not know it")
    call = Call()
    call.open()
    call.work()
    with suppress(ImplicitCommit), connection.cursor() as cursor:
        cursor.execute(sql)
    if connection.vendor != "sqlite":  # there any other call waits
        assert elsewhere(lambda: Call().run()) == Busy(retry_after=1)
    with pytest.raises(ImplicitCommit):  # although the view has handled the error
        call.settle()
    assert (effects(), Call().run()) == (0, Execute(attempt=2))


def test_work_longer_than_the_retention() -> None:
    """Its response is kept for a whole retention from its end: an immediate retry must not run it
    again.
    """
    call = Call(atomic_ticket(ttl=0.01))
    call.open()
    call.work()
    call.operation._opened_at -= 1
    call.settle()
    kept = row(call.ticket)
    assert kept.completed_at is not None
    assert kept.expires_at > kept.completed_at


# ---------------------------------------------------------------------------------------- receivers


def test_a_receiver_that_raises() -> None:
    """If a receiver raises, the guard ends, and the key is free: nothing has run."""

    def tell(event: str, operation: Operation, error: BaseException | None = None) -> None:
        if event == "claimed":
            raise Cut

    operation = AtomicOperation(ORMStore(), atomic_ticket(), tell)
    with pytest.raises(Cut):
        operation.open()
    assert_nothing_held()
    assert row(operation.ticket).status == Status.FREE


class CutShort(ORMStore):
    """Is interrupted inside a verb."""

    def commit(self, guard: Guard, ticket: Ticket, settlement: Settlement) -> bool:
        raise Cut


def test_cut_inside_the_settle() -> None:
    """The guard ends with a rollback: the next request of this thread gets a clean connection."""
    call = Call(store=CutShort())
    call.open()
    call.work()
    with pytest.raises(Cut):
        call.settle()
    assert_nothing_held()
    assert effects() == 0
    assert isinstance(Call().run(), Execute)


def break_by_orm() -> None:
    effect = Effect.objects.create(label="received")
    Effect.objects.create(pk=effect.pk, label="again")


def break_by_sql() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT no_such_column FROM nowhere")


@pytest.mark.parametrize("damage", [break_by_orm, break_by_sql])
def test_a_receiver_breaks_its_transaction(damage: Callable[[], None]) -> None:
    """A receiver's writes are rolled back to its start; the work continues, and is remembered with
    its writes.
    """

    def receiver(**_: Any) -> None:
        damage()

    claimed.connect(receiver)
    try:
        call = Call(listener=Observer())  # type: ignore[arg-type]
        assert isinstance(call.run(), Execute)
    finally:
        claimed.disconnect(receiver)
    assert list(Effect.objects.values_list("label", flat=True)) == ["work"]
    assert row(call.ticket).status == Status.COMPLETED


# ------------------------------------------------------------------------- settings and connections


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_no_autocommit(guarantee: Guarantee) -> None:
    """Other connections would not see the claim, so none is made."""
    transaction.set_autocommit(False)
    try:
        with pytest.raises(ConfigurationError, match="AUTOCOMMIT"):
            Call(make_ticket(guarantee=guarantee)).open()
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
    assert not IdempotencyRecord.objects.exists()


def test_a_record_that_cannot_be_written() -> None:
    """An integrity error that is not a duplicate is an error, not a key that is always busy."""
    with pytest.raises(StoreUnavailable) as raised:
        ORMStore().claim(make_ticket()._replace(path=None))  # type: ignore[arg-type]
    assert isinstance(raised.value.__cause__, DatabaseError)


def test_a_store_keeps_no_threads_connection() -> None:
    """A thread that ends takes its connection with it, even if it was the first."""
    store = ORMStore()

    def first() -> weakref.ref[BaseDatabaseWrapper]:
        store.claim(make_ticket())
        return weakref.ref(connections["default"])

    seen = elsewhere(first)
    gc.collect()
    assert seen() is None


@not_sqlite
def test_renewing_beside_a_locked_row() -> None:
    """A locked row delays its own renewal, and no other."""
    store = ORMStore()
    held, free = make_ticket(key="held"), make_ticket(key="free")
    for ticket in (held, free):
        store.claim(ticket)
    before = {ticket.key: row(ticket).lease_until for ticket in (held, free)}
    with transaction.atomic():
        list(IdempotencyRecord.objects.select_for_update().filter(pk=held.id))
        assert elsewhere(lambda: store.renew([held, free])) == {held.owner, free.owner}
    assert row(held).lease_until == before["held"]
    assert row(free).lease_until > before["free"]


def test_a_lease_that_was_renewed_meanwhile() -> None:
    """A claim that saw it lapse takes it only if it is still lapsed."""
    store, ticket = ORMStore(), make_ticket(lease=0)
    seen = store.claim(ticket)
    taking = store._statements.take(make_ticket(), seen, Execute(attempt=2), joined=False)
    assert store.renew([ticket._replace(lease=300)]) == {ticket.owner}
    assert store._statements.written(connection, taking) == 0
    assert row(ticket).owner == ticket.owner


@not_sqlite
def test_a_takeover_never_waits_for_long() -> None:
    """A lapsed lease whose row is in another transaction is busy within a second or two."""
    store, first = ORMStore(), make_ticket(lease=0)
    store.claim(first)
    with transaction.atomic():
        list(IdempotencyRecord.objects.select_for_update().filter(pk=first.id))
        assert isinstance(elsewhere(lambda: Call(make_ticket(), store=store).open()), Busy)
    call = Call(make_ticket(), store=store)
    assert call.open() == Execute(attempt=2, takeover=True)
    call.settle()
    assert Call(make_ticket(), store=store).open() == Replay(outcome=OUTCOME, attempt=2)


@pytest.mark.skipif(
    "connection.vendor != 'sqlite'", reason="Elsewhere a locked row is skipped, and no error is met"
)
def test_a_lost_race_keeps_no_cursor() -> None:
    """A lost race keeps no cursor, not even until another thread collects garbage, waiting for our
    connection.
    """
    call = Call()
    call.open()
    call.work()

    def lose() -> list[object]:
        with pytest.raises(LostRace) as raised:
            ORMStore().guard(atomic_ticket(), takeover=True).__enter__()
        cause = raised.value.__cause__
        assert cause is not None
        frames = [frame for frame, _ in traceback.walk_tb(cause.__traceback__)]
        return [
            value
            for frame in frames
            for value in frame.f_locals.values()
            if isinstance(value, CursorWrapper)
        ]

    assert elsewhere(lose) == []
    call.settle()
