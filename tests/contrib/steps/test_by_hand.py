"""A person undoes an operation that is held or was abandoned: each undo once, and never against a
live owner.
"""

from __future__ import annotations

import io
import logging
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from django_idempotency import conf
from django_idempotency.contrib.steps import UndoOn
from django_idempotency.contrib.steps.intervening import UndoneByHand, undo_by_hand
from django_idempotency.contrib.steps.journal import seal
from django_idempotency.contrib.steps.models import Step
from django_idempotency.contrib.steps.rules import StepRow, StepState, is_in_doubt
from django_idempotency.contrib.steps.terms import results_of
from django_idempotency.core.hashing import operation_ref
from django_idempotency.core.interventions import Intervention, released
from django_idempotency.core.records import CANCELLATION, Record
from django_idempotency.engine.lease import LeaseOperation
from django_idempotency.errors import HeldForPerson, OperationCancelled, StoreUnavailable
from django_idempotency.runtime.registry import stores

from ...functions.helpers import Clock
from . import work
from .test_resuming import guarded, operation
from .test_undoing import saga, states
from .work import PROVIDER, Crash, Declined

pytestmark = pytest.mark.django_db


def held_saga(card: str) -> Any:
    """Do three things, the last of which is never called twice, and about which nobody can be
    asked.
    """
    order = operation().step("order", work.make_order, card, undo=work.cancel_order)
    booked = operation().step("book", work.book, order, undo=work.release)
    return [
        booked,
        operation().step("charge", work.charge, order, undo=work.refund_found, at="most_once"),
    ]


def hold(body: Any = held_saga, *, charged: bool = True) -> Any:
    """Let an operation be held, with or without the effect of its last step."""
    book = guarded(body)
    (PROVIDER.breaks if charged else PROVIDER.fails)["charge"] = TimeoutError()
    with pytest.raises(TimeoutError):
        book("visa")
    with pytest.raises(HeldForPerson):
        book("visa")
    PROVIDER.fails.clear()
    return book


def undo(audit: Any = lambda _: None) -> UndoneByHand:
    return undo_by_hand(stores["default"], record_id(), using="default", audit=audit, ttl=86400)


def record_id() -> Any:
    return Step.objects.order_by("pk")[0].record


def typed(*arguments: str) -> str:
    out = io.StringIO()
    call_command("idempotency_resume", "operations", "--undo", *arguments, stdout=out)
    return out.getvalue()


def later() -> None:
    """Let those be dead that had taken a row."""
    Step.objects.exclude(due_at=None).update(due_at=timezone.now() - timedelta(seconds=1))


@pytest.mark.parametrize("charged", [True, False])
def test_what_is_held(clock: Clock, caplog: pytest.LogCaptureFixture, charged: bool) -> None:
    """Undos run in reverse, also that of the step in doubt; then the operation is cancelled, and
    its record kept no longer.
    """
    book = hold(charged=charged)
    with caplog.at_level(logging.WARNING, "django_idempotency"):
        assert typed(operation_ref(conf.derive_secret(), record_id())) == "Undone.\n"
    assert "Undone by hand, by" in caplog.text
    undone = [effect.partition("-")[0] for effect in PROVIDER.undone]
    assert undone == (["charge", "book"] if charged else ["book"])
    assert len(work.labels()) == 2
    assert states() == ["UNDONE"] * 3 + ["BARRIER"]
    for _ in range(2):
        with pytest.raises(OperationCancelled):
            book("visa")
    record = stores["default"].get(record_id())
    assert record is not None
    assert (record.outcome, record.expires_at - record.read_at) == (CANCELLATION, timedelta(days=1))
    assert "has ended, or is undone" in typed(str(record_id()))
    assert len(PROVIDER.undone) == len(undone)


def test_a_step_without_an_undo_is_named(clock: Clock) -> None:
    """A person looks at what cannot be undone, and may have had its effect."""

    def body(card: str) -> Any:
        operation().step("order", work.make_order, card, undo=work.cancel_order)
        operation().step("charge", work.charge, 1, at="most_once")

    hold(body)
    assert typed(str(record_id())).startswith("Look at: charge.")
    assert states() == ["UNDONE", "STARTED", "BARRIER"]


def test_what_was_abandoned(clock: Clock) -> None:
    """A live owner is never overtaken.

    One whose lease has ended is, and what it was told is asked first.
    """
    seen: list[Record] = []
    book = guarded(saga)
    PROVIDER.breaks["book"] = Crash()
    with pytest.raises(Crash):
        book("visa")
    assert undo(seen.append) == UndoneByHand(outcome=Intervention.BUSY)
    with pytest.raises(CommandError, match="is running"):
        typed(str(record_id()))
    assert (seen, states()) == ([], ["DONE", "STARTED"])
    clock.go(31)
    work.ANSWER.append(lambda asked: asked.found("book-9"))
    assert undo(seen.append) == UndoneByHand(outcome=Intervention.DONE)
    assert [record.attempt for record in seen] == [1]
    assert PROVIDER.undone == ["book-9"]
    with pytest.raises(OperationCancelled):
        book("visa")


def test_an_owner_that_still_runs(clock: Clock) -> None:
    """Its steps stay, whatever a person wants meanwhile."""
    outcomes: list[Intervention] = []

    def body(card: str) -> Any:
        done = saga(card)
        outcomes.append(undo().outcome)
        return done

    done = guarded(body)("visa")
    assert (outcomes, PROVIDER.undone, len(done)) == ([Intervention.BUSY], [], 3)
    assert undo().outcome is Intervention.ALREADY
    assert PROVIDER.undone == []


@pytest.mark.parametrize("gone", [False, True])
def test_two_at_once(clock: Clock, monkeypatch: pytest.MonkeyPatch, gone: bool) -> None:
    """The second one is refused while the first one's undos run; so it is where there is no record
    any more.
    """
    outcomes: list[Intervention] = []
    real = PROVIDER.do

    def do(what: str, key: str) -> str:
        if what in ("refund", "release"):
            outcomes.append(undo().outcome)
        return real(what, key)

    hold()
    if gone:
        clock.go(3651 * 86400)
    monkeypatch.setattr(PROVIDER, "do", do)
    assert undo().outcome is Intervention.DONE
    assert outcomes == [Intervention.BUSY] * 2
    assert (PROVIDER.asked("refund"), PROVIDER.asked("release")) == (1, 1)


@pytest.mark.parametrize("dies", ["before", "after"])
@pytest.mark.parametrize("undo_of", ["refund", "release"])
def test_it_dies(clock: Clock, undo_of: str, dies: str) -> None:
    """The next one waits for the lease of the dead, and goes on with the same keys: each undo has
    one effect.
    """
    book = hold()
    (PROVIDER.fails if dies == "before" else PROVIDER.breaks)[undo_of] = Crash()
    with pytest.raises(Crash):
        undo()
    PROVIDER.fails.clear()
    clock.go(61)
    assert undo().outcome is Intervention.BUSY  # it may be slow, and not dead
    later()
    assert undo() == UndoneByHand(outcome=Intervention.DONE)
    assert (PROVIDER.count("refund"), PROVIDER.count("release"), len(work.labels())) == (1, 1, 2)
    assert PROVIDER.asked(undo_of) == 2
    assert states() == ["UNDONE"] * 3 + ["BARRIER"]
    with pytest.raises(OperationCancelled):
        book("visa")


def test_one_that_fails(clock: Clock) -> None:
    """The operation is cancelled even so, and the rest is tried again: by a person at once, or by
    the command later.
    """
    book = hold()
    PROVIDER.fails["release"] = TimeoutError()
    with pytest.raises(CommandError, match=r"not all is undone yet.*book: TimeoutError"):
        typed(str(record_id()))
    with pytest.raises(OperationCancelled):
        book("visa")
    assert undo().failed == "book: TimeoutError"
    PROVIDER.fails.clear()
    assert typed(str(record_id())) == "Undone.\n"
    assert (PROVIDER.count("refund"), PROVIDER.count("release"), PROVIDER.asked("refund")) == (
        1,
        1,
        1,
    )


def test_the_undo_in_doubt_is_continued(clock: Clock) -> None:
    """What a person has begun to undo in spite of a doubt, a worker finishes."""
    hold()
    PROVIDER.breaks["refund"] = TimeoutError()
    assert undo().failed == "charge: TimeoutError"
    later()
    out = io.StringIO()
    call_command("idempotency_resume", "operations", stdout=out)
    assert out.getvalue().endswith("\n1 undone.\n")
    assert (PROVIDER.count("refund"), PROVIDER.count("release")) == (1, 1)


def test_a_later_word_counts(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that ends while it is undone in doubt is not taken for undone: its result is used at
    the next try.
    """
    hold()
    doubtful = Step.objects.get(name="charge")

    def ends(row: StepRow) -> bool:
        if row.name == "charge":
            result = seal(
                results_of(work.charge).dump("charge-7"), doubtful.run, doubtful.position, "result"
            )
            Step.objects.filter(pk=doubtful.pk).update(state=StepState.DONE, result=result)
        return is_in_doubt(row)

    with monkeypatch.context() as patching:
        patching.setattr("django_idempotency.contrib.steps.undoing.is_in_doubt", ends)
        assert "NotUndone" in undo().failed
    assert PROVIDER.count("refund") == 0


def test_an_answer_that_comes_late(clock: Clock) -> None:
    """What `ask` says of a step that has ended meanwhile is not believed, and its undo is not
    called with a doubt.
    """

    def body(card: str) -> Any:
        return operation().step(
            "charge", work.charge, 1, undo=work.refund_found, ask=work.found_out
        )

    book = guarded(body)
    PROVIDER.breaks["charge"] = Crash()
    with pytest.raises(Crash):
        book("visa")
    clock.go(31)
    row = Step.objects.get()

    def late(asked: Any) -> Any:
        result = seal(results_of(work.charge).dump("charge-7"), row.run, row.position, "result")
        Step.objects.filter(pk=row.pk).update(state=StepState.DONE, result=result)
        return asked.run()

    work.ANSWER.append(late)
    assert "NotUndone" in undo().failed
    assert PROVIDER.undone == []
    assert undo() == UndoneByHand(outcome=Intervention.DONE)
    assert PROVIDER.undone == ["charge-7"]


def test_another_person_is_faster(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a store that is not rows, too: a record that is no longer held by the same owner is not
    freed.
    """
    book, seen = hold(), list[Record]()
    store, held = stores["default"], stores["default"].get(record_id())
    store.change(record_id(), released, audit=lambda _: None)
    with pytest.raises(HeldForPerson):
        book("visa")
    with monkeypatch.context() as late:
        late.setattr(store, "get", lambda _: held)
        assert undo(seen.append) == UndoneByHand(outcome=Intervention.BUSY)
    assert (PROVIDER.undone, seen) == ([], [])
    with pytest.raises(HeldForPerson):
        book("visa")


def test_its_steps_vanish(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A purge deletes them after the command has found them: it does not say that a request is
    running.
    """

    def late(*args: Any, **named: Any) -> UndoneByHand:
        Step.objects.all().delete()
        return undo_by_hand(*args, **named)

    hold()
    monkeypatch.setattr(
        "django_idempotency.contrib.steps.command.undo_by_hand",
        late,
    )
    with pytest.raises(CommandError, match=r"no step of the record .* any more"):
        typed(str(record_id()))


def test_what_has_no_steps(clock: Clock) -> None:
    """A reference that means nothing here is said so."""
    with pytest.raises(CommandError, match="neither the id"):
        typed("nonsense")
    nobodys = "6f1c0d4e-0000-4000-8000-000000000000"
    with pytest.raises(CommandError, match="There is no step"):
        typed(nobodys)
    with pytest.raises(CommandError, match="type one of them"):
        typed(nobodys, "--dry-run")


def test_what_gave_up_itself(clock: Clock) -> None:
    """Its response stays what it was; a person may only be quicker than the command."""
    book = guarded(saga, extensions=[UndoOn(Declined)])
    PROVIDER.fails.update(charge=Declined("no money"), release=TimeoutError())
    with pytest.raises(Declined):
        book("visa")
    PROVIDER.fails.clear()
    assert undo().outcome is Intervention.DONE
    assert (PROVIDER.count("release"), states()[-1]) == (1, "BARRIER")
    with pytest.raises(Declined, match="no money"):
        book("visa")


@pytest.mark.parametrize("refused", ["busy", "away", "audit"])
def test_what_is_refused_can_still_be_finished(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    """The arguments of a call go only with its giving up, so that the command calls it again."""
    book = guarded(saga)
    PROVIDER.breaks["book"] = Crash()
    with pytest.raises(Crash):
        book("visa")
    clock.go(31)

    def away(*_: Any) -> Any:
        raise StoreUnavailable

    with monkeypatch.context() as patching:
        if refused == "busy":  # its client comes between the look and the claim
            patching.setattr(LeaseOperation, "open", lambda _: None)
            assert undo() == UndoneByHand(outcome=Intervention.BUSY)
        else:
            if refused == "away":
                patching.setattr(LeaseOperation, "open", away)
            with pytest.raises(StoreUnavailable):
                undo(away)
    assert (states(), PROVIDER.undone) == (["DONE", "STARTED"], [])
    assert Step.objects.get(position=1).arguments is not None
    clock.go(61)
    assert undo().outcome is Intervention.DONE
    assert set(Step.objects.values_list("arguments", flat=True)) == {None}


def test_what_one_undid_another_does_not_postpone(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker whose undo fails after another has done it writes nothing of that."""
    hold()
    barrier: list[Step] = []

    def fails(what: str, key: str) -> None:
        rows = Step.objects.filter(run=Step.objects.get(name="charge").run)
        barrier.extend(rows.filter(state=StepState.BARRIER))
        rows.exclude(state=StepState.BARRIER).update(state=StepState.UNDONE)
        rows.update(due_at=None)
        raise TimeoutError

    with monkeypatch.context() as patching:
        patching.setattr(PROVIDER, "do", fails)
        undo()
    assert barrier
    assert set(Step.objects.values_list("error", "due_at")) == {("", None)}
