"""`atomic` functions: the result is remembered and their writes are committed, or neither
happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import DatabaseError, connection, transaction
from django.test import override_settings

from django_idempotency import idempotent_function
from django_idempotency.core.records import Status
from django_idempotency.errors import (
    CalledItself,
    DurableInsideGuard,
    HeldForPerson,
    InProgress,
    LeaseInTransaction,
    StoreUnavailable,
    WritesRolledBack,
)
from django_idempotency.functions import Known, current_operation
from django_idempotency.functions.takeovers import Takeover
from django_idempotency.models import IdempotencyRecord
from testproject.payments.models import Effect
from tests.stores.helpers import committed, connection_id, elsewhere, kill, not_sqlite

from .helpers import MEMORY, ORM, CardDeclined, NetworkDown


@pytest.fixture(autouse=True)
def records(db: None) -> Iterator[None]:
    with override_settings(IDEMPOTENCY={"STORES": {"default": ORM, "memory": MEMORY}}):
        yield
    Effect.objects.all().delete()


def effect(label: str = "charge") -> int:
    current = current_operation()
    assert current is not None
    return Effect.objects.create(
        label=label, idempotency_key=current.key, attempt=current.attempt
    ).attempt


@idempotent_function(key="order", keep_exceptions=CardDeclined)
def charge(order: int, error: Exception | None = None) -> int:
    attempt = effect()
    if error is not None:
        raise error
    return attempt


@committed
def test_result_and_writes_together() -> None:
    """After the call both exist, once."""
    assert [charge(1), charge(1)] == [1, 1]
    assert Effect.objects.count() == 1


@committed
def test_an_exception_takes_the_writes_back() -> None:
    """An exception frees the key after the rollback."""
    with pytest.raises(NetworkDown):
        charge(1, NetworkDown())
    assert Effect.objects.count() == 0
    assert charge(1) == 2
    assert Effect.objects.count() == 1


@committed
def test_a_kept_exception_takes_the_writes_back_too() -> None:
    """A kept exception is stored, and the writes are rolled back."""
    for _ in range(2):
        with pytest.raises(CardDeclined):
            charge(1, CardDeclined("no money", 51))
    with pytest.raises(CardDeclined):
        charge(1)
    assert Effect.objects.count() == 0
    assert isinstance(charge.idempotency.lookup(1), Known)


@committed
@pytest.mark.parametrize("cut", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_what_is_not_an_exception(cut: type[BaseException]) -> None:
    """It is rolled back but not released; a takeover follows the claim's lease, as the row is not
    locked.
    """

    @idempotent_function(key_prefix="cut", key="order")
    def work(order: int, *, fails: bool) -> int:
        attempt = effect()
        if fails:
            raise cut
        return attempt

    with pytest.raises(cut):
        work(1, fails=True)
    assert Effect.objects.count() == 0
    IdempotencyRecord.objects.update(lease_until=IdempotencyRecord.objects.get().created_at)
    assert work(1, fails=False) == 2


@committed
def test_inside_an_open_transaction() -> None:
    """The call joins the open transaction: a rollback of the caller undoes effect and record
    together.
    """

    class Undone(Exception):
        pass

    with pytest.raises(Undone), transaction.atomic():  # noqa: PT012
        assert charge(1) == 1
        assert charge(1) == 1
        raise Undone
    assert (Effect.objects.count(), IdempotencyRecord.objects.count()) == (0, 0)
    with transaction.atomic():
        assert charge(1) == 1
    assert charge(1) == 1
    assert Effect.objects.count() == 1


@committed
def test_a_kept_exception_inside_an_open_transaction() -> None:
    """The call's own writes are rolled back, the caller's stay, and the caller continues."""
    with transaction.atomic():
        Effect.objects.create(label="before")
        with pytest.raises(CardDeclined):
            charge(1, CardDeclined("no money", 51))
        with pytest.raises(CardDeclined):
            charge(1)
        Effect.objects.create(label="after")
    assert set(Effect.objects.values_list("label", flat=True)) == {"before", "after"}
    with pytest.raises(CardDeclined):
        charge(1)


@committed
@not_sqlite
def test_a_duplicate_of_a_call_in_an_open_transaction() -> None:
    """A duplicate waits for that transaction, but not for long."""
    with transaction.atomic():
        charge(1)
        with pytest.raises(InProgress):
            elsewhere(lambda: charge(1))


@committed
@pytest.mark.parametrize("store", ["default", "memory"])
def test_a_lease_refuses_an_open_transaction(store: str) -> None:
    """The record would survive a rollback, so the lease is refused.

    A test's own transaction does not count.
    """

    @idempotent_function(guarantee="lease", store=store, key_prefix="send")
    def send(order: int) -> int:
        return order

    with transaction.atomic(), pytest.raises(LeaseInTransaction):
        send(1)
    assert send(1) == 1


@committed
@pytest.mark.parametrize("store", ["default", "memory"])
def test_a_lease_refuses_a_connection_that_is_committed_by_hand(store: str) -> None:
    """Anything written on it may be rolled back."""

    @idempotent_function(guarantee="lease", store=store, key_prefix="send")
    def send(order: int) -> int:
        return order

    transaction.set_autocommit(False)
    try:
        with pytest.raises(LeaseInTransaction, match="is not in autocommit"):
            send(1)
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
    assert send(1) == 1


@committed
@pytest.mark.parametrize("store", ["default", "memory"])
def test_an_async_lease_refuses_the_transaction_of_sync_code(store: str) -> None:
    """The transaction is open in another thread, which waits, and the claim would join it."""

    @idempotent_function(guarantee="lease", store=store, key_prefix="send")
    async def send(order: int) -> int:
        return order

    async def task(order: int) -> int:
        return await asyncio.ensure_future(send(order))

    for called in (send, task):
        with transaction.atomic(), pytest.raises(LeaseInTransaction):
            async_to_sync(called)(1)
        assert async_to_sync(called)(1) == 1


@pytest.mark.django_db
@pytest.mark.parametrize("store", ["default", "memory"])
def test_a_lease_in_a_tests_transaction(store: str) -> None:
    """A lease works in a test's transaction, and still refuses one that the code under test has
    opened.
    """

    @idempotent_function(guarantee="lease", store=store, key_prefix="send")
    def send(order: int) -> int:
        return order

    assert connection.in_atomic_block
    assert [send(1), send(1)] == [1, 1]
    with transaction.atomic(), pytest.raises(LeaseInTransaction):
        send(2)


@committed
def test_durable_inside() -> None:
    """The call raises Django's error, with what to write instead."""

    @idempotent_function(key_prefix="work")
    def work(order: int) -> None:
        with transaction.atomic(durable=True):
            pass

    with pytest.raises(DurableInsideGuard):
        work(1)


@committed
def test_a_lease_inside_whose_refusal_is_swallowed() -> None:
    """A task that runs at once could not run, and says so to nobody: a success is not stored."""

    @idempotent_function(guarantee="lease", store="memory", key_prefix="task")
    def task(order: int) -> None:
        pass

    @idempotent_function(key_prefix="work")
    def work(order: int) -> None:
        with suppress(LeaseInTransaction):
            task(order)

    for _ in range(2):
        with pytest.raises(LeaseInTransaction):
            work(1)


@committed
@not_sqlite
@pytest.mark.parametrize("guarantee", ["atomic", "lease"])
@pytest.mark.parametrize("broken", ["between two calls", "in a call"])
def test_a_worker_whose_connection_breaks(guarantee: str, broken: str) -> None:
    """No request ends here that would close it.

    One call fails, and the next ones have a new connection.
    """

    @idempotent_function(guarantee=guarantee, key_prefix="work")
    def work(order: int) -> int:
        if broken == "in a call" and order == 1:
            kill(connection_id())
        return effect()

    def worker() -> list[int]:
        work(0)
        if broken == "between two calls":
            kill(connection_id())
        with pytest.raises((StoreUnavailable, DatabaseError)):
            work(1)
        return [work(2), work(3)]

    assert elsewhere(worker) == [1, 1]


@committed
def test_a_transaction_that_was_given_up() -> None:
    """The project's own mark is a dry run: its result is returned, and nothing of it is
    remembered.
    """

    @idempotent_function(key_prefix="dry")
    def work(order: int) -> str:
        runs.append(order)
        effect()
        transaction.set_rollback(True)
        return "answered"

    runs: list[int] = []
    assert [work(1), work(1)] == ["answered", "answered"]
    assert (Effect.objects.count(), len(runs)) == (0, 2)


@committed
def test_the_end_of_a_call_leaves_no_transaction_open() -> None:
    """No ending leaves a transaction open, not even an interrupted serializer."""

    def dump(value: Any) -> Any:
        raise KeyboardInterrupt

    @idempotent_function(serializer=(dump, dump), key_prefix="work")
    def work(order: int) -> int:
        return effect()

    with pytest.raises(KeyboardInterrupt):
        work(1)
    assert not connection.in_atomic_block
    assert Effect.objects.count() == 0


@committed
def test_an_interrupt_in_the_midst_of_our_own_lines() -> None:
    """A signal's exception may come anywhere: here during the storing of a kept exception."""

    class Cut(Exception):
        def __str__(self) -> str:
            raise KeyboardInterrupt

    @idempotent_function(keep_exceptions=Cut, key_prefix="work")
    def work(order: int) -> None:
        effect()
        raise Cut

    with pytest.raises(KeyboardInterrupt) as caught:
        work(1)
    # It holds our frames, so nothing is collected yet.
    assert caught.value.__traceback__ is not None
    assert not connection.in_atomic_block
    assert Effect.objects.count() == 0


def fails_in_sql(charge: Any) -> Any:
    """Dump with a statement that fails, as after a statement timeout."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT no_such_column FROM nowhere")


def fails_in_save(charge: Any) -> Any:
    Effect.objects.create(pk=Effect.objects.create(label="audit").pk, label="audit again")


@committed
@pytest.mark.parametrize(
    "dump",
    [
        fails_in_save,
        pytest.param(
            fails_in_sql,
            marks=pytest.mark.skipif(
                "connection.vendor != 'postgresql'", reason="elsewhere the transaction goes on"
            ),
        ),
    ],
)
def test_a_serializer_that_breaks_the_transaction(dump: Any) -> None:
    """Without its writes the function's result is not a success: the next call runs again."""

    @idempotent_function(key="order", serializer=(dump, dump), key_prefix="charge_in_full")
    def charge_in_full(order: int) -> object:
        return effect()

    for attempt in (1, 2):
        with pytest.raises(WritesRolledBack):
            charge_in_full(1)
        record = IdempotencyRecord.objects.get()
        assert (record.status, record.attempt, Effect.objects.count()) == (Status.FREE, attempt, 0)


# ---------------------------------------------------------------------------------------- takeovers


def lapse() -> None:
    """Let the lease of the claim end while the row is not locked."""
    IdempotencyRecord.objects.update(lease_until=IdempotencyRecord.objects.get().created_at)


def crashed(ask: Any, **given: Any) -> tuple[Any, list[BaseException | None]]:
    """Return a function whose first call crashed, and the errors that its next runs raise instead
    of returning.
    """
    errors: list[BaseException | None] = [SystemExit()]

    @idempotent_function(
        key_prefix="crashed", key="order", guarantee="atomic", on_takeover=ask, **given
    )
    def work(order: int) -> str:
        attempt = effect("work")
        if errors and (error := errors.pop(0)) is not None:
            raise error
        return f"attempt {attempt}"

    with pytest.raises(SystemExit):
        work(1)
    lapse()
    return work, errors


def noting(answer: Any) -> Any:
    """Return a hook that writes, and then returns this answer."""

    def ask(takeover: Takeover) -> Any:
        assert connection.in_atomic_block
        assert current_operation() is takeover
        Effect.objects.create(label="asked", idempotency_key=takeover.key, attempt=takeover.attempt)
        return answer(takeover)

    return ask


def written() -> list[tuple[str, int]]:
    return list(Effect.objects.order_by("pk").values_list("label", "attempt"))


@committed
def test_a_takeover_that_finds_the_result() -> None:
    """The hook's writes are committed with the result that it found; the call never runs."""
    work, _ = crashed(noting(lambda takeover: takeover.found("it was done")))
    assert [work(1), work(1)] == ["it was done"] * 2
    assert written() == [("asked", 2)]
    assert work.idempotency.lookup(1).state == "completed"


@committed
def test_a_takeover_that_is_held() -> None:
    """The hook's writes stay with the record, which waits for a person; the hook is not called
    again.
    """
    work, _ = crashed(noting(lambda takeover: takeover.hold()))
    for _ in range(2):
        with pytest.raises(HeldForPerson):
            work(1)
        assert written() == [("asked", 2)]
    assert work.idempotency.lookup(1).state == "held"
    lapse()
    with pytest.raises(HeldForPerson):
        work(1)
    assert written() == [("asked", 2)]


@committed
def test_a_takeover_that_runs() -> None:
    """Hook and run share one transaction: both are committed, or neither."""
    work, errors = crashed(noting(lambda takeover: takeover.run()))
    errors.append(NetworkDown())
    with pytest.raises(NetworkDown):
        work(1)
    assert written() == []
    assert work.idempotency.lookup(1).state == "failed"
    assert [work(1), work(1)] == ["attempt 3"] * 2
    assert written() == [("work", 3)]  # a call that failed is not a crash, so the hook is not asked


@committed
def test_a_takeover_whose_run_answers() -> None:
    """The hook is asked once, and its writes are committed with those of the run."""
    work, _ = crashed(noting(lambda takeover: takeover.run()))
    assert [work(1), work(1)] == ["attempt 2"] * 2
    assert written() == [("asked", 2), ("work", 2)]


@committed
@pytest.mark.parametrize(
    "error", [NetworkDown(), SystemExit()], ids=["an exception", "no exception"]
)
def test_a_takeover_that_fails(error: BaseException) -> None:
    """Nothing is decided: the writes are undone, the record is unchanged, and after its lease the
    next call asks.
    """
    answers = [raising(error), lambda takeover: takeover.found("it was done")]
    # A different one each time.
    work, _ = crashed(noting(lambda takeover: answers.pop(0)(takeover)))  # noqa: PLW0108
    with pytest.raises(type(error)):
        work(1)
    assert not connection.in_atomic_block
    assert written() == []
    assert work.idempotency.lookup(1).state in ("running", "abandoned")
    lapse()
    assert work(1) == "it was done"
    assert [label for label, _ in written()] == ["asked"]


@committed
def test_a_takeover_that_finds_a_refusal() -> None:
    """A kept exception is remembered and the hook's writes are rolled back, as when the call itself
    raises it.
    """
    work, _ = crashed(noting(raising(CardDeclined("no money", 51))), keep_exceptions=CardDeclined)
    for _ in range(2):
        with pytest.raises(CardDeclined):
            work(1)
    assert written() == []
    assert work.idempotency.lookup(1).state == "completed"


def raising(error: BaseException) -> Any:
    def ask(takeover: Takeover) -> Any:
        raise error

    return ask


@committed
def test_a_call_inside_itself() -> None:
    """With `atomic` too, and through another call, it is refused and rolled back.

    Another order is unaffected.
    """

    @idempotent_function(key="order", key_prefix="outer")
    def outer(order: int, inner_order: int) -> None:
        effect()
        inner(inner_order)

    @idempotent_function(key="order", key_prefix="inner")
    def inner(order: int) -> None:
        if order < 3:
            outer(order, 3)

    with pytest.raises(CalledItself):
        outer(1, 1)
    assert Effect.objects.count() == 0
    outer(1, 2)
    assert Effect.objects.count() == 2
