"""`idempotency_resume operations`: what died between two steps is finished or undone, by whichever worker
takes it.
"""

from __future__ import annotations

import io
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from django_idempotency import idempotent_function
from django_idempotency.contrib.steps import UndoOn
from django_idempotency.contrib.steps.completing import Completed, due
from django_idempotency.contrib.steps.completing import complete as work_on
from django_idempotency.contrib.steps.housekeeping import erase, purge
from django_idempotency.contrib.steps.models import Step
from django_idempotency.errors import OperationCancelled, StoreUnavailable
from django_idempotency.runtime.registry import stores

from ...functions.helpers import LEASES, Clock
from . import work
from .test_resuming import guarded
from .test_undoing import saga, states
from .work import PROVIDER, Crash, Declined

pytestmark = pytest.mark.django_db

BREAKS: list[str] = []


@idempotent_function(key="card", key_prefix="booked-by-name")
def book_by_name(card: str, seats: int = 1) -> Any:
    """Be found by another process."""
    return [*saga(card), seats]


def complete(*arguments: str) -> str:
    """Let time pass, run the command, and return what it printed."""
    Step.objects.exclude(due_at=None).update(due_at=timezone.now() - timedelta(seconds=1))
    out = io.StringIO()
    call_command("idempotency_resume", "operations", *arguments, stdout=out)
    return out.getvalue()


def give_up() -> str:
    """Let a person give up the newest operation, and return what the command printed."""
    return complete("--undo", str(Step.objects.order_by("-pk")[0].record))


def crashed(book: Any, clock: Clock, at: str = "charge") -> None:
    """Let a call die after an effect, and its lease end."""
    PROVIDER.breaks[at] = Crash()
    with pytest.raises(Crash):
        book("visa")
    clock.go(31)


def test_a_function_is_finished(clock: Clock) -> None:
    """A call whose process died is made again, with its arguments and its key; a retry gets its
    result.
    """
    PROVIDER.breaks["charge"] = Crash()
    with pytest.raises(Crash):
        book_by_name("visa", seats=3)
    assert "still running" in complete("--verbosity", "2")
    clock.go(31)
    assert "1 finished" in complete()
    assert (work.labels(), PROVIDER.count("charge"), PROVIDER.count("book")) == (
        ["order visa"],
        1,
        1,
    )
    assert book_by_name("visa", seats=3)[-1] == 3
    assert PROVIDER.asked("charge") == 2
    assert "Nothing" in complete()


def test_what_nobody_can_finish_waits_or_is_undone(clock: Clock) -> None:
    """What has no stored arguments waits for its client, and is listed, until a person gives it up:
    then retries know.
    """
    book = guarded(saga)
    crashed(book, clock, at="book")
    Step.objects.update(arguments=None)
    said = complete()
    assert "1 waiting" in said
    assert f"{Step.objects.order_by('pk')[0].record}  waiting for a retry of the client: " in said
    assert PROVIDER.undone == []
    work.ANSWER.append(lambda asked: asked.found("book-1"))
    assert give_up() == "Undone.\n"
    assert PROVIDER.undone == ["book-1"]
    assert states() == ["UNDONE", "UNDONE", "BARRIER"]
    with pytest.raises(OperationCancelled):
        book("visa")
    assert len(work.labels()) == 2


def test_an_undo_is_tried_again(clock: Clock) -> None:
    """What could not be undone is undone later, once."""
    book = guarded(saga, extensions=[UndoOn(Declined)])
    PROVIDER.fails.update(charge=Declined(), release=TimeoutError())
    with pytest.raises(Declined):
        book("visa")
    with pytest.raises(CommandError, match="tried again"):
        complete()
    PROVIDER.fails.clear()
    assert "1 undone" in complete()
    assert (len(PROVIDER.undone), work.labels()[1:]) == (1, [work.labels()[-1]])
    assert "Nothing" in complete()


def test_a_row_is_taken_once(clock: Clock) -> None:
    """A second worker finds nothing of what the first has taken, until that must be dead."""
    crashed(guarded(saga), clock)
    Step.objects.exclude(due_at=None).update(due_at=timezone.now() - timedelta(seconds=1))
    assert len(due("default", limit=10)) == 1
    assert due("default", limit=10) == []


def test_what_another_has_taken_is_left_to_it(clock: Clock) -> None:
    """A worker that was slow before a row looks whether it still has it."""
    crashed(guarded(saga), clock, at="book")
    Step.objects.update(arguments=None)
    Step.objects.exclude(due_at=None).update(due_at=timezone.now() - timedelta(seconds=1))
    [row] = due("default", limit=10)
    Step.objects.exclude(due_at=None).update(due_at=timezone.now() + timedelta(minutes=4))
    assert [each.became for each in work_on([row], using="default")] == [Completed.RUNNING]
    assert (states(), PROVIDER.undone) == (["DONE", "STARTED"], [])


def test_what_waits_is_said_to_wait(clock: Clock) -> None:
    """A run soon after another finds nothing due, and says what is left."""
    crashed(guarded(saga), clock, at="book")
    Step.objects.update(arguments=None)
    assert "1 waiting" in complete()
    out = io.StringIO()
    call_command("idempotency_resume", "operations", stdout=out)
    assert out.getvalue().startswith("Nothing to complete now. 1 operation is looked at later")
    work.ANSWER.append(lambda asked: asked.run())
    assert give_up() == "Undone.\n"
    assert complete() == "Nothing to complete.\n"


def test_a_cancelled_operation_is_undone(clock: Clock) -> None:
    """An operation that was cancelled after it had begun is undone by the command."""
    from uuid import uuid4

    from django_idempotency.core.conclusions import Ending, WorkResult
    from django_idempotency.core.records import CANCELLATION
    from django_idempotency.engine.lease import LeaseOperation

    crashed(guarded(saga), clock, at="book")
    store, first = stores["default"], Step.objects.order_by("position")[0]
    record = store.get(first.record)
    assert record is not None
    cancelling = LeaseOperation(
        store, record.ticket(owner=uuid4())._replace(lease=30), lambda *_: None
    )
    cancelling.open()
    cancelling.settle(Ending(WorkResult.KEPT, CANCELLATION, succeeded=True))
    work.ANSWER.append(lambda asked: asked.run())
    assert "1 undone" in complete()
    assert (PROVIDER.undone, len(work.labels())) == ([], 2)


def test_purge_keeps_what_is_owed(clock: Clock) -> None:
    """Rows go when their retention is over, unless an undo of theirs has not been done."""
    book = guarded(saga, extensions=[UndoOn(Declined)])
    PROVIDER.fails.update(charge=Declined(), release=TimeoutError())
    with pytest.raises(Declined):
        book("visa")
    PROVIDER.fails.clear()
    book("master")
    Step.objects.update(purge_at=timezone.now() - timedelta(seconds=1))
    clock.go(2 * 86400)
    assert purge("default", limit=100) == 4  # of the one that ended
    complete()
    Step.objects.update(purge_at=timezone.now() - timedelta(seconds=1))
    assert purge("default", limit=100) == 4
    assert Step.objects.count() == 0


def test_erase(clock: Clock) -> None:
    """Results and arguments go; that a step was done stays."""
    guarded(saga)("visa")
    record = Step.objects.order_by("position")[0].record
    assert erase("default", record, erased=False) == 0
    assert set(Step.objects.values_list("result", "arguments")) == {(None, None)}
    assert states() == [*["DONE"] * 3, "ENDED"]


def test_the_limit_of_a_purge_is_for_all_it_deletes(clock: Clock) -> None:
    """Records, steps and what follows share it."""
    for card in ("visa", "master"):
        guarded(saga)(card)
    rows = Step.objects.count()
    Step.objects.update(purge_at=timezone.now() - timedelta(seconds=1))
    clock.go(2 * 86400)
    call_command("purge_idempotency", "--limit", "3", "--batch-size", "2", verbosity=0)
    assert Step.objects.count() == rows - 1  # and two records
    call_command("purge_idempotency", verbosity=0)
    assert Step.objects.count() == 0


def test_steps_outlive_no_record_and_no_record_its_steps(clock: Clock, settings: Any) -> None:
    """A record elsewhere, which retries keep alive without coming to a step, keeps its steps: none
    is done twice.
    """
    book, other = guarded(saga), guarded(saga)
    crashed(book, clock)
    other("master")
    Step.objects.update(purge_at=timezone.now() - timedelta(seconds=1), due_at=None)
    assert purge("default", limit=100) == 0
    left = [
        (at - timezone.now()).total_seconds()
        for at in Step.objects.values_list("purge_at", flat=True)
    ]
    assert 86000 < min(left) <= max(left) <= 86400
    work.ANSWER.append(lambda asked: asked.run())
    book("visa")
    assert (len(work.labels()), PROVIDER.count("charge")) == (2, 2)
    Step.objects.update(purge_at=timezone.now() - timedelta(seconds=1))
    settings.IDEMPOTENCY = {"STORES": {"another": LEASES["STORES"]["default"]}, "STORE": "another"}
    assert purge("default", limit=100) == 0  # nobody can tell


def test_steps_of_a_store_that_is_not_there_any_more(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """They are kept for 30 days: the alias may be missing from one deploy only.

    Then they go, and the log says so.
    """
    guarded(saga)("visa")
    rows, now = Step.objects.count(), timezone.now()
    Step.objects.update(store="renamed", purge_at=now - timedelta(days=29))
    assert purge("default", limit=100) == 0
    Step.objects.update(purge_at=now - timedelta(days=31))
    assert purge("default", limit=100) == rows
    assert "'renamed' is not in STORES" in caplog.text


def test_a_purge_looks_at_its_limit(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """One call asks for no more records than that, even if all of them live."""
    book = guarded(saga)
    for card in ("visa", "master", "amex"):
        book(card)
    rows, store = Step.objects.count() // 3, stores["default"]
    asked: list[Any] = []
    real = store.get

    def get(record: Any) -> Any:
        asked.append(record)
        return real(record)

    monkeypatch.setattr(store, "get", get)
    for seconds, run in enumerate(set(Step.objects.values_list("run", flat=True)), 1):
        Step.objects.filter(run=run).update(purge_at=timezone.now() - timedelta(seconds=seconds))
    for calls in (1, 2, 3):
        assert purge("default", limit=rows) == 0
        assert len(asked) == calls
    assert Step.objects.filter(purge_at__lt=timezone.now()).count() == 0


def test_a_store_that_is_away_keeps_its_own_steps(
    clock: Clock, settings: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Those of other stores go; it is asked once in a purge, and again in minutes."""
    memory = LEASES["STORES"]["default"]
    settings.IDEMPOTENCY = {**LEASES, "STORES": {"default": memory, "away": memory}}
    book = guarded(saga)
    for card in ("visa", "master", "amex"):
        book(card)
    first, second, _ = (
        Step.objects.order_by("operation").values_list("operation", flat=True).distinct()
    )
    Step.objects.update(purge_at=timezone.now() - timedelta(seconds=1), record=uuid4())
    rows = Step.objects.filter(operation__in=[first, second])
    rows.update(store="away")
    asked: list[Any] = []

    def away(record: Any) -> Any:
        asked.append(record)
        raise StoreUnavailable("no route to it")

    with monkeypatch.context() as patching:
        patching.setattr(stores["away"], "get", away)
        assert purge("default", limit=100) == 4
        assert purge("default", limit=100) == 0
    assert (len(asked), rows.count(), Step.objects.count()) == (1, 8, 8)
    assert "no route to it" in caplog.text
    Step.objects.update(purge_at=timezone.now() - timedelta(seconds=1))
    assert purge("default", limit=100) == 8


def test_an_empty_reference_undoes_nothing(clock: Clock) -> None:
    """Neither does a variable that a shell did not expand, nor a reason without a reference."""
    crashed(guarded(saga), clock, at="book")
    Step.objects.update(arguments=None)
    with pytest.raises(CommandError, match="empty REF"):
        complete("--undo", "", "--reason", "x")
    with pytest.raises(CommandError, match="empty REF"):
        complete("--undo=")
    with pytest.raises(CommandError, match="--reason is for --undo REF"):
        complete("--reason", "x")
    assert states() == ["DONE", "STARTED"]


def test_steps_go_with_their_record(clock: Clock) -> None:
    """Or when another operation has its key."""
    book = guarded(saga)
    book("visa")
    rows = Step.objects.count()
    clock.go(2 * 86400)
    book("visa")
    Step.objects.update(purge_at=timezone.now() - timedelta(seconds=1))
    assert purge("default", limit=100) == rows
    assert Step.objects.count() == rows
    clock.go(2 * 86400)
    Step.objects.update(purge_at=timezone.now() - timedelta(seconds=1))
    assert purge("default", limit=100) == rows
