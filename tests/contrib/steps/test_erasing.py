"""idempotency_erase reaches the steps of a record before the record, by which it finds them."""

from __future__ import annotations

import io
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_idempotency.contrib.steps.models import Step
from django_idempotency.runtime.registry import stores

from ...functions.helpers import LEASES
from . import work
from .test_resuming import guarded
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
    """If the process dies between the two, the next run finds the record, and what was to be erased is gone already."""

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
    """A record more costs two statements of its steps, and no look at the catalogue of the database."""
    with CaptureQueriesContext(connection) as captured:
        erase(scope)
    looks = ("sqlite_master", "relispartition", "information_schema")  # those of Django
    catalogue = [query for query in captured if any(table in query["sql"] for table in looks)]
    assert len(catalogue) <= 2  # and once for the audit trail
