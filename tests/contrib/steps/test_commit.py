"""Whether something was committed is asked; what may be abandoned is not reported as done."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import IntegrityError, OperationalError, connection, transaction

from django_idempotency import idempotent_function
from django_idempotency.contrib.steps import UndoOn
from django_idempotency.contrib.steps.models import Step
from django_idempotency.errors import (
    InProgress,
    OperationCancelled,
    OperationUndone,
    OutcomeUnknown,
    StoreUnavailable,
)
from django_idempotency.runtime.registry import stores

from ...functions.helpers import Clock
from . import work
from .test_async import aguarded
from .test_completing import book_by_name, complete
from .test_resuming import guarded, operation
from .test_undoing import states
from .work import PROVIDER, Crash, Declined

pytestmark = pytest.mark.django_db(transaction=True)

RAISES: list[Exception] = []


def order(card: str) -> int:
    """Write here, and raise after COMMIT."""

    def after() -> None:
        if RAISES:
            raise RAISES.pop()

    transaction.on_commit(after)
    return work.make_order(card)


def ordering(card: str) -> Any:
    return operation().step("order", order, card, undo=work.cancel_order)


@pytest.mark.parametrize(
    "error",
    [Declined(), IntegrityError(), OperationalError()],
    ids=lambda error: type(error).__name__,
)
def test_a_callback_that_raises_after_the_commit(clock: Clock, error: Exception) -> None:
    """The step is done, whatever class its callback raises: what gives up undoes it."""
    RAISES.append(error)
    book = guarded(ordering, extensions=[UndoOn(type(error))])
    with pytest.raises(type(error)):
        book("visa")
    assert len(work.labels()) == 2
    assert states() == ["UNDONE", "BARRIER"]


def test_a_step_is_done_before_its_callback(clock: Clock) -> None:
    """A view that catches it ends with its own response; and one that does not goes on after the
    step.
    """

    def catching(card: str) -> Any:
        try:
            return ordering(card)
        except Declined:
            return operation().step("charge", work.charge, 1)

    RAISES.append(Declined())
    book = guarded(catching)
    assert book("visa") == book("visa")
    RAISES.append(TimeoutError())
    book = guarded(ordering)
    with pytest.raises(TimeoutError):
        book("amex")
    book("amex")
    assert (work.labels(), PROVIDER.asked("charge")) == (["order visa", "order amex"], 1)


@pytest.mark.parametrize("kind", [IntegrityError, OperationalError])
@pytest.mark.parametrize("takes_place", [True, False], ids=["committed", "rolled back"])
def test_a_commit_without_a_response(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, kind: type[Exception], takes_place: bool
) -> None:
    """What gives up asks the database, since no exception says whether it took place."""
    real = connection.commit

    def broken() -> None:
        if "INSERT" not in "".join(said):
            return real()
        monkeypatch.undo()
        (real if takes_place else connection.rollback)()
        connection.run_on_commit.clear()
        raise kind

    def seen(execute: Any, sql: str, *rest: Any) -> Any:
        said.append(sql)
        return execute(sql, *rest)

    said: list[str] = []
    book = guarded(ordering, extensions=[UndoOn(kind)])
    monkeypatch.setattr(connection, "commit", broken)
    with connection.execute_wrapper(seen), pytest.raises(kind):
        book("visa")
    assert len(work.labels()) == (2 if takes_place else 0)


# ---------------------------------------------------------------------------------------------- cut


def cutting(card: str) -> Any:
    async def slow(order: int, *, idempotency_key: str) -> str:
        PROVIDER.do("charge", idempotency_key)
        await asyncio.sleep(60)
        raise AssertionError

    step = operation().astep("charge", slow, 1, undo=work.arefund, ask=work.found_out)
    return asyncio.wait_for(step, 0.1)


def block(card: str) -> Any:
    async def slow() -> None:
        async with operation().astep("charge", undo=work.arefund, ask=work.found_out) as step:
            PROVIDER.do("charge", step.key)
            await asyncio.sleep(60)

    return asyncio.wait_for(slow(), 0.1)


async def catching(card: str) -> str:
    try:
        await cutting(card)
    except asyncio.TimeoutError:
        return "too slow"
    raise AssertionError


@pytest.mark.parametrize("body", [cutting, block, catching])
def test_a_step_that_is_cut(clock: Clock, body: Any) -> None:
    """It may still run, such as in a thread: its key stays busy until its lease has ended, and then
    it is asked about.
    """
    work.ANSWER.append(lambda asked: asked.found(PROVIDER.effects[asked.key]))
    book = aguarded(body)
    if body is catching:
        assert book("visa") == "too slow"
    else:
        with pytest.raises(asyncio.TimeoutError):
            book("visa")
    with pytest.raises(InProgress):
        book("visa")
    assert (PROVIDER.asked("charge"), states()) == (1, ["STARTED"])


def test_what_is_cut_is_not_asked_about_at_once(clock: Clock) -> None:
    """An operation that gives up then leaves that to `idempotency_resume operations`: a call that still runs
    has no effect yet.
    """
    work.ANSWER.append(lambda asked: asked.run())
    book = aguarded(cutting, extensions=[UndoOn(asyncio.TimeoutError)])
    for _ in range(2):
        with pytest.raises(asyncio.TimeoutError):
            book("visa")
    assert (PROVIDER.asked("charge"), states()) == (1, ["STARTED", "BARRIER"])
    work.ANSWER[:] = [lambda asked: asked.found(PROVIDER.effects[asked.key])]
    complete()
    assert (PROVIDER.asked("refund"), states()) == (1, ["UNDONE", "BARRIER"])


# ------------------------------------------------------------------------------ what is not printed


def test_a_call_of_the_command_that_fails(clock: Clock) -> None:
    """Nobody hears of it, so nobody sends it again but the command: it does, until it is done."""
    PROVIDER.breaks["charge"] = Crash()
    with pytest.raises(Crash):
        book_by_name("visa")
    PROVIDER.fails["charge"] = TimeoutError()
    for _ in range(2):
        clock.go(31)
        with pytest.raises(CommandError, match="tried again"):
            complete()
    PROVIDER.fails.clear()
    clock.go(31)
    assert "1 finished" in complete()
    assert (work.labels(), PROVIDER.count("charge"), PROVIDER.count("book")) == (
        ["order visa"],
        1,
        1,
    )


@idempotent_function(key="card", key_prefix="caught-by-name")
def catch_by_name(card: str) -> str:
    """Go on after an exception that is no result."""
    ordering(card)
    try:
        return str(operation().step("charge", work.charge, 1, undo=work.refund, ask=work.found_out))
    except TimeoutError:
        return "unknown"


def test_a_call_of_the_command_that_catches(clock: Clock) -> None:
    """A step that has not ended is not finished, whatever the function returns."""
    work.ANSWER.append(lambda asked: asked.run())
    PROVIDER.breaks["charge"] = Crash()
    with pytest.raises(Crash):
        catch_by_name("visa")
    PROVIDER.fails["charge"] = TimeoutError()
    for _ in range(2):
        clock.go(31)
        assert "finished" not in complete()
    PROVIDER.fails.clear()
    clock.go(31)
    assert "1 finished" in complete()
    assert PROVIDER.count("charge") == 1


@pytest.mark.parametrize("undo", [work.refund, None])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_settle_that_is_not_written(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, undo: Any, is_async: bool
) -> None:
    """What can be undone is not reported as done before its record says so. A retry finds out."""

    def body(card: str) -> Any:
        return operation().step("charge", work.charge, 1, undo=undo)

    async def abody(card: str) -> Any:
        return await operation().astep("charge", work.charge, 1, undo=undo)

    def away(*_: Any) -> bool:
        raise StoreUnavailable

    book = aguarded(abody) if is_async else guarded(body)
    store: Any = stores["default"]
    monkeypatch.setattr("django_idempotency.engine.waiting.SETTLE_PATIENCE", 0.0)
    monkeypatch.setattr("django_idempotency.engine.lease.deferring.add", lambda _: False)
    with monkeypatch.context() as outage:
        outage.setattr(store, "settle", away)
        if undo is None:
            book("visa")
        else:
            with pytest.raises(OutcomeUnknown):
                book("visa")
    clock.go(31)
    assert book("visa") in PROVIDER.effects.values()
    assert PROVIDER.asked("charge") == 1


# ---------------------------------------------------------------------------------- nothing remains


def giving_up(what: str = "") -> Any:
    """Return a function that orders, does one thing more, gives up, and raises what is no
    result.
    """

    def body(card: str) -> Any:
        ordering(card)
        try:
            if what in ("raises", "is resumed"):
                operation().step("book", work.book, 1)
            elif what:
                operation().step(
                    "charge", work.charge, 1, undo=work.refund if what == "is not undone" else None
                )
        except Declined:
            pass
        operation().undo_steps()
        raise Declined

    return guarded(body)


def test_nothing_remains(clock: Clock) -> None:
    """A retry of what gave up hears that all of it was undone."""
    book = giving_up()
    with pytest.raises(Declined):
        book("visa")
    with pytest.raises(OperationUndone):
        book("visa")


@pytest.mark.parametrize("what", ["has no undo", "raises", "is resumed", "is not undone"])
def test_something_may_remain(clock: Clock, what: str) -> None:
    """A step that has no undo, or of which nobody knows whether it had its effect."""
    book = giving_up(what)
    if what == "is resumed":
        PROVIDER.breaks["book"] = Crash()
        with pytest.raises(Crash):
            book("visa")
        clock.go(31)
    PROVIDER.fails.update(refund=TimeoutError(), book=Declined())
    with pytest.raises(Declined):
        book("visa")
    with pytest.raises(OperationCancelled) as caught:
        book("visa")
    assert type(caught.value) is OperationCancelled
    assert Step.objects.filter(name="").exists()
