"""idempotency_erase reaches the steps of a record before the record, by which it finds them."""

from __future__ import annotations

import io
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_idempotency.contrib.steps import UndoOn, housekeeping
from django_idempotency.contrib.steps.models import Step
from django_idempotency.core.interventions import Intervention
from django_idempotency.inspection.interventions import VERBS, intervene
from django_idempotency.runtime.registry import stores

from ...functions.helpers import LEASES
from . import work
from .test_resuming import guarded, operation
from .test_undoing import saga

pytestmark = [pytest.mark.django_db, pytest.mark.any_database]


@pytest.fixture
def scope(settings: Any) -> str:
    """Return the scope of two calls with three steps each."""
    settings.IDEMPOTENCY = {**LEASES, "STORE": "orm"}
    book = guarded(saga)
    for card in ("visa", "master"):
        book(card)
    return str(book.idempotency.scope)


def erase(scope: str) -> str:
    out = io.StringIO()
    call_command("idempotency_erase", "--store", "orm", "--scope", scope, "--no-input", stdout=out)
    return out.getvalue()


def left() -> int:
    """Return how many results are left."""
    return Step.objects.exclude(result=None).count()


def test_a_crash_in_between_leaves_nothing(scope: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the process dies between the two, the next run finds the record, and what was to be erased
    is gone already.
    """

    def dies(*_: Any, **__: Any) -> None:
        raise work.Crash

    with monkeypatch.context() as patch:
        patch.setattr(type(stores["orm"]), "change", dies)
        with pytest.raises(work.Crash):
            erase(scope)
    assert left() == 3
    assert "2 of 2 records erased" in erase(scope)
    assert left() == 0


def test_the_table_is_looked_for_once(scope: str) -> None:
    """A record more costs two statements of its steps, and no look at the catalogue of the
    database.
    """
    with CaptureQueriesContext(connection) as captured:
        erase(scope)
    looks = ("sqlite_master", "relispartition", "information_schema")  # those of Django
    catalogue = [query for query in captured if any(table in query["sql"] for table in looks)]
    assert len(catalogue) <= 2  # and once for the audit trail


def saying_card(card: str) -> Any:
    """Do one step that cannot be undone, and fail."""
    operation().step("book", work.book, card)
    raise TimeoutError


def test_a_failed_call_leaves_nothing(settings: Any) -> None:
    """Nobody calls a function again whose record was forgotten: its arguments and results go, which
    a command kept for that.
    """
    settings.IDEMPOTENCY = {**LEASES, "STORE": "orm"}
    book = guarded(saying_card)
    with pytest.raises(TimeoutError):
        book("visa")
    assert Step.objects.exclude(arguments=None).exists()
    assert "1 of 1 records erased" in erase(str(book.idempotency.scope))
    assert set(Step.objects.values_list("result", "arguments")) == {(None, None)}


def test_an_undo_that_is_owed_keeps_what_it_needs(settings: Any) -> None:
    """The command says so and fails, and when all is undone nothing is left."""
    settings.IDEMPOTENCY = {**LEASES, "STORE": "orm"}
    book = guarded(saga, extensions=[UndoOn(work.Declined)])
    work.PROVIDER.fails.update(charge=work.Declined(), release=TimeoutError())
    with pytest.raises(work.Declined):
        book("visa")
    record = Step.objects.order_by("pk")[0].record
    assert housekeeping.erase("default", record, erased=True) == 1
    assert left() > 0
    work.PROVIDER.fails.clear()
    Step.objects.exclude(due_at=None).update(due_at=timezone.now() - timedelta(seconds=1))
    call_command("idempotency_resume", "operations", verbosity=0)
    assert housekeeping.erase("default", record, erased=True) == 0
    assert left() == 0


def test_a_record_that_is_erased_by_hand(settings: Any) -> None:
    """*Erase* of one record reaches what its steps store, too."""
    settings.IDEMPOTENCY = {**LEASES, "STORE": "orm"}
    guarded(saga)("visa")
    record = Step.objects.order_by("pk")[0].record
    done, _ = intervene(
        VERBS["erase"], stores["orm"], record, alias="orm", actor="ada", reason="asked for"
    )
    assert (done, left()) == (Intervention.DONE, 0)
