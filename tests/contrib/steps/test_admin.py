"""The steps of a record, on its page in the admin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from pytest_django import Settings

from django_idempotency.contrib.steps import UndoOn
from django_idempotency.contrib.steps.models import Step
from django_idempotency.errors import OperationCancelled
from django_idempotency.models import IdempotencyRecord
from tests.admin.conftest import boss  # noqa: F401 - a fixture
from tests.support.factories import grant

from . import work
from .test_by_hand import held_saga, hold
from .test_resuming import guarded, operation
from .test_undoing import saga
from .work import PROVIDER, Declined

pytestmark = [pytest.mark.any_database, pytest.mark.django_db(transaction=True)]


@pytest.fixture(autouse=True)
def _lease(settings: Settings) -> Iterator[None]:
    settings.IDEMPOTENCY = {"GUARANTEE": "lease"}
    yield
    PROVIDER.fails.clear()


def page(client: Client) -> str:
    record = IdempotencyRecord.objects.get()
    return client.get(
        reverse("admin:django_idempotency_idempotencyrecord_change", args=[record.pk])
    ).content.decode()


def section(client: Client) -> str:
    text = page(client)
    return text[text.index('id="idempotency-steps-heading"') :].partition("</section>")[0]


def give_up(**failing: Exception) -> None:
    PROVIDER.fails.update(charge=Declined(), **failing)
    with pytest.raises(Declined):
        guarded(saga, extensions=[UndoOn(Declined)])("visa")


def test_the_steps_in_order(boss: Client) -> None:  # noqa: F811 - the fixture
    """Names and states in order, with the undo of each; a result is not on the page."""
    [_, booked, _] = guarded(saga)("visa")
    shown = section(boss)
    places = [shown.index(f'<th scope="row">{name}</th>') for name in ("order", "book", "charge")]
    assert places == sorted(places)
    assert shown.count('<span class="idempotency-label completed">done</span>') == 3
    assert [f"<code>{undo}</code>" in shown for undo in ("cancel_order", "release", "refund")] == [
        True
    ] * 3
    assert booked not in shown
    assert "not undone yet" not in shown


def test_an_operation_that_gave_up(boss: Client) -> None:  # noqa: F811
    """What is not undone yet is named, with the error of its undo."""
    give_up(release=TimeoutError())
    shown = section(boss)
    for label in ("failed", "is being undone", "undone", "given up"):
        assert f">{label}</span>" in shown
    assert shown.count("not undone yet") == 1
    assert "<code>TimeoutError</code>" in shown


def test_an_operation_that_is_undone(boss: Client) -> None:  # noqa: F811
    """Nothing is owed any more."""
    give_up()
    assert (section(boss).count(">undone</span>"), section(boss).count("not undone yet")) == (2, 0)


def test_a_corrected_request(boss: Client) -> None:  # noqa: F811
    """Each request that was sent with the key has a table of its own."""
    guarded(saga)("visa")
    for step in Step.objects.order_by("position"):
        step.pk, step.run = None, IdempotencyRecord.objects.get().pk
        step.save(force_insert=True)
    assert section(boss).count("<table>") == 2


def test_one_query_for_all(boss: Client) -> None:  # noqa: F811
    """Results are not read, and no step is read on its own."""
    guarded(saga)("visa")
    with CaptureQueriesContext(connection) as captured:
        page(boss)
    [query] = [query["sql"] for query in captured if Step._meta.db_table in query["sql"]]
    assert not any(name in query for name in ('"result"', "`result`", '"arguments"', "`arguments`"))


@pytest.mark.parametrize("may", [False, True])
def test_who_may_see_them(may: bool) -> None:
    """It takes the permission to view steps, beside that to view records."""
    guarded(saga)("visa")
    user = User.objects.create_user("viewer", is_staff=True)
    grant(user, IdempotencyRecord, "view_idempotencyrecord")
    if may:
        grant(user, Step, "view_step")
    client = Client()
    client.force_login(user)
    assert ("idempotency-steps-heading" in page(client)) is may


def test_a_record_without_steps(boss: Client) -> None:  # noqa: F811
    """There is no empty section."""

    def nothing(card: str) -> Any:
        return card

    guarded(nothing)("visa")
    assert "idempotency-steps-heading" not in page(boss)


# ------------------------------------------------------------------------------------------ by hand


def undo_page() -> str:
    record = IdempotencyRecord.objects.get()
    return reverse("admin:django_idempotency_idempotencyrecord_undo", args=[record.pk])


WHY = {"reason": "The customer has cancelled."}


def test_a_person_undoes(boss: Client) -> None:  # noqa: F811
    """What is held is undone after a confirmation with a reason, which the log keeps; then there is
    no button.
    """
    book = hold(held_saga)
    assert undo_page() in section(boss)
    assert "First make sure" in boss.get(undo_page()).content.decode()
    assert (PROVIDER.undone, LogEntry.objects.count()) == ([], 0)
    done = boss.post(undo_page(), WHY, follow=True).content.decode()
    assert "1 operation was undone." in done
    assert len(PROVIDER.undone) == 2
    assert "Undone. It was completed" in LogEntry.objects.get().change_message
    assert WHY["reason"] in LogEntry.objects.get().change_message
    assert undo_page() not in section(boss)
    assert (
        "1 operation has ended, or was undone before."
        in boss.post(undo_page(), WHY, follow=True).content.decode()
    )
    with pytest.raises(OperationCancelled):
        book("visa")


def test_what_is_left_for_a_person(boss: Client) -> None:  # noqa: F811
    """A step in doubt without an undo is named, and so is an undo that failed."""

    def body(card: str) -> Any:
        held_before = operation().step("book", work.book, 1, undo=failing)
        return [held_before, operation().step("charge", work.charge, 1, at="most_once")]

    hold(body)
    done = boss.post(undo_page(), WHY, follow=True).content.decode()
    assert "Look at charge: nobody knows whether it had its effect." in done
    assert "book: TimeoutError" in done
    assert "find out whether it had its effect" in section(boss)
    assert undo_page() in section(boss)


def failing(charged: str, *, idempotency_key: str) -> None:
    """Be an undo that fails."""
    raise TimeoutError


def test_who_may_undo(boss: Client) -> None:  # noqa: F811
    """It takes a permission of its own. What has ended has no button."""
    hold(held_saga)
    user = User.objects.create_user("viewer", is_staff=True)
    grant(user, IdempotencyRecord, "view_idempotencyrecord")
    grant(user, Step, "view_step")
    client = Client()
    client.force_login(user)
    assert undo_page() not in section(client)
    assert client.post(undo_page(), WHY).status_code == 403
    assert PROVIDER.undone == []
    grant(user, Step, "undo_step")
    client.force_login(User.objects.get(pk=user.pk))
    assert undo_page() in section(client)


def test_what_has_ended_has_no_button(boss: Client) -> None:  # noqa: F811
    guarded(saga)("visa")
    assert undo_page() not in section(boss)
