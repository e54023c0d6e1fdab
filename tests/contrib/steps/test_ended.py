"""What has succeeded is never undone, and what a person has read is still so when it is undone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import call_command
from django.db import OperationalError
from django.test import Client
from django.utils import timezone, translation
from pytest_django import Settings

from django_idempotency.contrib.steps import UndoOn, admin, intervening
from django_idempotency.contrib.steps.actions import drive
from django_idempotency.contrib.steps.completing import journal_of
from django_idempotency.contrib.steps.intervening import newest_of
from django_idempotency.contrib.steps.journal import Journal
from django_idempotency.contrib.steps.models import Step
from django_idempotency.contrib.steps.running import Steps
from django_idempotency.contrib.steps.undoing import give_up
from django_idempotency.core.interventions import Intervention, released
from django_idempotency.core.records import Status
from django_idempotency.engine.lease import LeaseOperation
from django_idempotency.errors import OwnershipLost, StoreUnavailable
from django_idempotency.models import IdempotencyRecord
from django_idempotency.runtime.registry import stores
from tests.admin.conftest import boss  # noqa: F401 - a fixture

from . import work
from .test_admin import WHY, section, undo_page
from .test_by_hand import held_saga, hold, later, record_id, typed, undo
from .test_completing import complete
from .test_resuming import guarded, operation
from .test_undoing import saga, states
from .work import PROVIDER, Crash, Declined

pytestmark = [pytest.mark.any_database, pytest.mark.django_db(transaction=True)]


@pytest.fixture(autouse=True)
def _rows(settings: Settings) -> Iterator[None]:
    """Keep records as rows, beside the steps."""
    settings.IDEMPOTENCY = {"GUARANTEE": "lease"}
    yield
    PROVIDER.fails.clear()


def refundable(card: str) -> Any:
    order = operation().step("order", work.make_order, card, undo=work.cancel_order)
    return operation().step(
        "charge", work.charge, order, undo=work.refund_found, at="most_once", ask=work.found_out
    )


def paid_and_died(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the response be stored, and the process die before it has noted that."""
    book = guarded(refundable)
    with monkeypatch.context() as dying:
        dying.setattr(Steps, "close", lambda _: 1 / 0)
        book("visa")


def expire() -> None:
    IdempotencyRecord.objects.update(expires_at=timezone.now() - timedelta(seconds=5))


# ----------------------------------------------------------------------------------- what succeeded


def test_the_worker_notes_the_end(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """Where the owner died before it could: nobody can undo it then, not even when its record is
    gone.
    """
    paid_and_died(monkeypatch)
    assert states() == ["DONE", "DONE"]
    complete()
    assert states() == ["DONE", "DONE", "ENDED"]
    assert not Step.objects.exclude(due_at=None).exists()
    assert undo_page() not in section(boss)
    row = newest_of(record_id(), "default")
    with pytest.raises(OwnershipLost):  # a late owner, which was in the middle of giving up
        drive(give_up(journal_of(row, "default")))
    IdempotencyRecord.objects.all().delete()
    assert undo().outcome is Intervention.ALREADY
    assert PROVIDER.undone == []


@pytest.mark.parametrize("known", ["noted", "not noted"])
def test_an_expired_success(boss: Client, monkeypatch: pytest.MonkeyPatch, known: str) -> None:  # noqa: F811
    """An expired record still says that its operation succeeded: to a person, and to the
    command.
    """
    paid_and_died(monkeypatch)
    expire()
    if known == "noted":
        complete()
        assert states()[-1] == "ENDED"
    said = boss.post(undo_page(), WHY, follow=True).content.decode()
    assert "1 operation has ended, or was undone before." in said
    assert (PROVIDER.undone, LogEntry.objects.count()) == ([], 0)


def test_another_writes_the_end_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner was only slow, and has noted the end between the look and the write."""
    paid_and_died(monkeypatch)
    real = Journal.finish

    def finish(journal: Journal, position: int) -> None:
        monkeypatch.setattr(Journal, "finish", real)
        real(journal, position)
        real(journal, position)

    monkeypatch.setattr(Journal, "finish", finish)
    assert complete("--verbosity", "2").endswith("1 already ended.\n")
    assert states() == ["DONE", "DONE", "ENDED"]


def test_the_worker_dies_as_it_notes_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one finds the note, and makes no second one."""
    paid_and_died(monkeypatch)
    with monkeypatch.context() as dying:
        dying.setattr(Journal, "close", lambda _: (_ for _ in ()).throw(Crash))
        with pytest.raises(Crash):
            complete()
    assert states() == ["DONE", "DONE", "ENDED"]
    assert "1 already ended" in complete()
    assert states() == ["DONE", "DONE", "ENDED"]
    assert not Step.objects.exclude(due_at=None).exists()


def test_what_gave_up_and_then_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A barrier whose writer died before the steps were unwatched: the undos that are owed are
    done.
    """
    book = guarded(saga, extensions=[UndoOn(Declined)])
    PROVIDER.fails.update(charge=Declined(), release=TimeoutError())
    with pytest.raises(Declined):
        book("visa")
    PROVIDER.fails.clear()
    barrier = Step.objects.get(name="")
    Step.objects.filter(position=1).update(
        due_at=barrier.due_at, created_at=barrier.created_at - timedelta(hours=1)
    )
    Step.objects.filter(pk=barrier.pk).update(created_at=timezone.now())
    Step.objects.update(due_at=timezone.now() - timedelta(seconds=1))
    call_command("idempotency_resume", "operations", verbosity=0)
    assert states() == ["UNDONE", "UNDONE", "FAILED", "BARRIER"]


# --------------------------------------------------------------------------- a record that was held


def meanwhile(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], Any]) -> None:
    """Let something happen after a person's undo has read the record."""
    real = intervening._take

    def take(*args: Any) -> bool:
        monkeypatch.setattr(intervening, "_take", real)
        happens()
        return real(*args)

    monkeypatch.setattr(intervening, "_take", take)


@pytest.mark.parametrize("retried", [True, False])
def test_released_by_another(monkeypatch: pytest.MonkeyPatch, retried: bool) -> None:
    """A second person releases it, and perhaps its retry succeeds: that stays, and the first person
    tries again.
    """
    work.ANSWER.append(lambda asked: asked.hold())
    book = hold(refundable)

    def happens() -> None:
        stores["default"].change(record_id(), released, audit=lambda _: None)
        if retried:
            work.ANSWER[:] = [lambda asked: asked.found("charge-1")]
            assert book("visa") == "charge-1"

    meanwhile(monkeypatch, happens)
    seen: list[Any] = []
    assert undo(seen.append).outcome is Intervention.BUSY
    assert (PROVIDER.undone, seen) == ([], [])
    record = stores["default"].get(record_id())
    assert record is not None
    assert record.status is (Status.COMPLETED if retried else Status.FREE)
    if retried:
        assert book("visa") == "charge-1"
    assert undo(seen.append).outcome is (Intervention.ALREADY if retried else Intervention.DONE)
    assert len(seen) == (0 if retried else 1)


def test_an_audit_that_fails() -> None:
    """Without its audit the record stays held."""
    hold(held_saga)
    held = stores["default"].get(record_id())

    def fails(_: Any) -> None:
        raise OperationalError

    with pytest.raises(OperationalError):
        undo(fails)
    found = stores["default"].get(record_id())
    assert held is not None
    assert found is not None
    assert (found.owner, found.outcome) == (held.owner, held.outcome)
    expire()
    with pytest.raises(OperationalError):
        undo(fails)
    assert "BARRIER" not in states()


def test_it_vanishes_when_it_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """A purge deletes it in between: nobody owns it any more, so its steps are undone."""
    hold(held_saga)
    real = intervening._freed

    def freed(*args: Any, **named: Any) -> bool:
        done = real(*args, **named)
        IdempotencyRecord.objects.all().delete()
        return done

    monkeypatch.setattr(intervening, "_freed", freed)
    assert undo().outcome is Intervention.DONE
    assert states()[-1] == "BARRIER"
    assert len(PROVIDER.undone) == 2


# ---------------------------------------------------------------------------------------- its trace


def test_an_expired_record_leaves_a_trace(boss: Client) -> None:  # noqa: F811
    """Also where its retention is over: the admin's log has who, why, and what it was."""
    hold(held_saga)
    expire()
    assert "1 operation was undone." in boss.post(undo_page(), WHY, follow=True).content.decode()
    assert len(PROVIDER.undone) == 2
    assert WHY["reason"] in LogEntry.objects.get().change_message


def test_the_command_logs_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    hold(held_saga)
    IdempotencyRecord.objects.all().delete()
    with caplog.at_level(logging.WARNING, "django_idempotency"):
        assert typed(str(record_id()), "--reason", "cancelled") == "Undone.\n"
    [facts] = [record.idempotency for record in caplog.records if hasattr(record, "idempotency")]
    assert (facts["event"], facts["reason"]) == ("undone_by_hand", "cancelled")


# ------------------------------------------------------------------------------------ what is shown


def test_the_newest_row_decides(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """Where a record has more rows than are shown, the button follows the newest one."""
    guarded(saga)("visa")
    monkeypatch.setattr(admin, "MOST", 2)
    assert undo_page() not in section(boss)


def test_a_database_that_is_away(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """The person reads that, and no server error; in their language, as they read what is left."""
    hold(held_saga)
    with monkeypatch.context() as away:
        away.setattr(Journal, "bar", lambda *_: (_ for _ in ()).throw(OperationalError))
        said = boss.post(undo_page(), WHY, follow=True)
    assert said.status_code == 200
    assert "The steps cannot be undone now: OperationalError." in said.content.decode()
    PROVIDER.fails["release"] = TimeoutError()
    with translation.override("de"):
        said = boss.post(undo_page(), WHY, follow=True, headers={"accept-language": "de"})
    assert "book: TimeoutError" in said.content.decode()
    assert "Not all is undone yet" not in said.content.decode()


def test_a_store_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """The free record is claimed when the store is back."""
    hold(held_saga)

    def away(_: Any) -> Any:
        raise StoreUnavailable

    with monkeypatch.context() as broken:
        broken.setattr(LeaseOperation, "open", away)
        with pytest.raises(StoreUnavailable):
            undo()
    later()
    assert undo().outcome is Intervention.DONE
    assert len(PROVIDER.undone) == 2
