"""Giving up: what was done is undone in reverse, each step once, and nothing follows."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import OperationalError

from django_idempotency.contrib.steps import UndoOn
from django_idempotency.contrib.steps.journal import Journal
from django_idempotency.contrib.steps.models import Step
from django_idempotency.contrib.steps.rules import StepState
from django_idempotency.errors import OperationCancelled

from ...functions.helpers import Clock
from . import work
from .test_resuming import guarded, operation
from .work import PROVIDER, Crash, Declined

pytestmark = pytest.mark.django_db


def saga(card: str) -> Any:
    """Do three things that can be undone."""
    order = operation().step("order", work.make_order, card, undo=work.cancel_order)
    booked = operation().step("book", work.book, order, undo=work.release, ask=work.found_out)
    charged = operation().step(
        "charge", work.charge, order, undo=work.refund, ask=work.found_out, keep=[Declined]
    )
    return [order, booked, charged]


def states() -> list[str]:
    """Return the states of all rows in order."""
    return [
        StepState(state).name
        for state in Step.objects.order_by("position").values_list("state", flat=True)
    ]


def test_on_a_named_exception(clock: Clock) -> None:
    """An exception of `UndoOn` undoes what was done, and is the result from then on."""
    book = guarded(saga, extensions=[UndoOn(Declined)])
    PROVIDER.fails["charge"] = Declined("no money")
    for _ in range(2):
        with pytest.raises(Declined, match="no money"):
            book("visa")
    assert [what for what, _ in PROVIDER.calls] == ["book", "charge", "release"]
    assert work.labels() == ["order visa", f"cancelled {_order()}"]
    assert states() == ["UNDONE", "UNDONE", "FAILED", "BARRIER"]
    assert Step.objects.get(state=StepState.FAILED).error == "tests.contrib.steps.work.Declined"
    assert Step.objects.exclude(due_at=None).count() == 0
    keys = [key for _, key in PROVIDER.calls]
    assert len(set(keys)) == 3  # the undo has a key of its own


def _order() -> int:
    from testproject.payments.models import Effect

    return Effect.objects.order_by("pk")[0].pk


def test_by_hand(clock: Clock) -> None:
    """A view that gives up itself gets on with its own result, which is stored."""

    def body(card: str) -> str:
        saga(card)
        assert operation().undo_steps()
        return "sold out"

    book = guarded(body)
    assert (book("visa"), book("visa")) == ("sold out", "sold out")
    assert PROVIDER.undone == [
        next(e for e in PROVIDER.effects.values() if e.startswith(what))
        for what in ("charge", "book")
    ]


def test_no_step_follows(clock: Clock) -> None:
    """After giving up, a step is refused, now and on a later attempt."""

    def body(card: str) -> None:
        operation().step("order", work.make_order, card)
        operation().undo_steps()
        operation().step("charge", work.charge, 1)

    book = guarded(body)
    for _ in range(2):
        with pytest.raises(OperationCancelled):
            book("visa")
    assert PROVIDER.calls == []


def test_before_its_first_step(clock: Clock) -> None:
    """A retry that gives up before it comes to a step undoes what an earlier attempt has done."""

    def body(card: str) -> Any:
        if sold_out:
            raise Declined
        saga(card)
        sold_out.append(card)
        raise TimeoutError

    sold_out: list[str] = []
    book = guarded(body, extensions=[UndoOn(Declined)])
    with pytest.raises(TimeoutError):
        book("visa")
    for _ in range(2):
        with pytest.raises(Declined):
            book("visa")
    assert states() == ["UNDONE", "UNDONE", "UNDONE", "BARRIER"]


def test_a_barrier_that_cannot_be_written(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the database is away when the work gives up, its exception is not the result: a retry
    undoes what was done.
    """
    book = guarded(saga, extensions=[UndoOn(Declined)])
    PROVIDER.fails["charge"] = Declined()
    with monkeypatch.context() as away:
        away.setattr(Journal, "bar", lambda *_: (_ for _ in ()).throw(OperationalError))
        with pytest.raises(Declined):
            book("visa")
    assert "UNDONE" not in states()
    for _ in range(2):
        with pytest.raises(Declined):
            book("visa")
    assert states() == ["UNDONE", "UNDONE", "FAILED", "BARRIER"]


def test_a_result_despite_a_step_in_doubt(clock: Clock) -> None:
    """A function that catches what a call elsewhere raised is called again, and goes on with that
    step.
    """

    def careless(card: str) -> Any:
        try:
            return saga(card)
        except TimeoutError:
            return "no payment has been taken"

    book = guarded(careless)
    PROVIDER.breaks["charge"] = TimeoutError()
    assert book("visa") == "no payment has been taken"
    # Idempotency_complete finishes it, if no caller does.
    assert Step.objects.exclude(due_at=None).exists()
    for _ in range(2):
        assert len(book("visa")) == 3
    assert (PROVIDER.count("charge"), states()) == (1, ["DONE", "DONE", "DONE", "ENDED"])


def test_giving_up_without_any_step(clock: Clock) -> None:
    """A retry that has nothing to undo writes no barrier."""

    def body(card: str) -> Any:
        if tried:
            raise Declined
        tried.append(card)
        raise TimeoutError

    tried: list[str] = []
    book = guarded(body, extensions=[UndoOn(Declined)])
    for error in (TimeoutError, Declined):
        with pytest.raises(error):
            book("visa")
    assert Step.objects.count() == 0


@pytest.mark.parametrize("dies", ["before", "after"])
def test_an_undo_that_breaks_off(clock: Clock, dies: str) -> None:
    """The next attempt undoes the rest, under the same keys: each undo has one effect, and no step
    is repeated.
    """
    book = guarded(saga, extensions=[UndoOn(Declined)])
    PROVIDER.fails["charge"] = Declined()
    (PROVIDER.fails if dies == "before" else PROVIDER.breaks)["release"] = Crash()
    with pytest.raises(Crash):
        book("visa")
    PROVIDER.fails.clear()
    clock.go(31)
    for _ in range(2):
        with pytest.raises(OperationCancelled):
            book("visa")
    assert (PROVIDER.count("release"), PROVIDER.asked("release"), PROVIDER.asked("charge")) == (
        1,
        2,
        1,
    )
    assert len(work.labels()) == 2
    assert states() == ["UNDONE", "UNDONE", "FAILED", "BARRIER"]


def test_an_undo_that_fails(clock: Clock) -> None:
    """The result is stored, the others are done, and the failed one waits for
    `idempotency_resume operations`.
    """
    book = guarded(saga, extensions=[UndoOn(Declined)])
    PROVIDER.fails.update(charge=Declined(), release=TimeoutError())
    with pytest.raises(Declined):
        book("visa")
    assert states() == ["UNDONE", "UNDOING", "FAILED", "BARRIER"]
    barrier = Step.objects.get(state=StepState.BARRIER)
    assert barrier.due_at is not None
    assert Step.objects.get(name="book").error == "TimeoutError"


def test_a_late_owner_finds_the_barrier(clock: Clock) -> None:
    """An owner that was believed dead cannot do a step after another has given up."""
    late: list[Any] = []

    def body(card: str) -> Any:
        run = operation()
        run.step("order", work.make_order, card, undo=work.cancel_order)
        if not late:
            late.append(run)
            raise Crash
        raise Declined

    book = guarded(body, extensions=[UndoOn(Declined)])
    with pytest.raises(Crash):
        book("visa")
    clock.go(31)
    with pytest.raises(Declined):
        book("visa")
    [run] = late
    written = work.labels()
    steps = run._steps  # its lease is not looked at: it does not know yet
    steps.is_lost = lambda: False
    for step in (
        lambda: run.step("seat", work.make_order, "visa"),
        lambda: run.step("charge", work.charge, 1),
    ):
        with pytest.raises(OperationCancelled):
            step()
    assert (work.labels(), PROVIDER.asked("charge")) == (written, 0)


@pytest.mark.parametrize(("answer", "undone"), [("found", 1), ("run", 0)])
def test_a_step_that_broke_off_is_asked_about(clock: Clock, answer: str, undone: int) -> None:
    """What may have had its effect is undone if it had one."""
    tries: list[int] = []

    def body(card: str) -> Any:
        tries.append(1)
        if len(tries) > 1:
            operation().undo_steps()
            return "given up"
        return operation().step("charge", work.charge, 1, undo=work.refund, ask=work.found_out)

    book = guarded(body)
    PROVIDER.breaks["charge"] = Crash()
    with pytest.raises(Crash):
        book("visa")
    clock.go(31)
    work.ANSWER.append(lambda asked: asked.found("charge-9") if answer == "found" else asked.run())
    assert book("visa") == "given up"
    assert PROVIDER.undone == ["charge-9"] * undone


def test_a_step_that_nobody_knows_about(clock: Clock) -> None:
    """Without `ask`, what broke off stays as it is, and what came before it is undone."""
    tries: list[int] = []

    def body(card: str) -> Any:
        tries.append(1)
        order = operation().step("order", work.make_order, card, undo=work.cancel_order)
        if len(tries) > 1:
            return operation().undo_steps()
        return operation().step("charge", work.charge, order, undo=work.refund)

    book = guarded(body)
    PROVIDER.breaks["charge"] = Crash()
    with pytest.raises(Crash):
        book("visa")
    clock.go(31)
    assert book("visa") is False
    assert states() == ["UNDONE", "STARTED", "BARRIER"]
    assert PROVIDER.undone == []
