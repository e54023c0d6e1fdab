"""A step that writes here writes to the database of the steps, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.contrib import admin
from django.db import connections
from django.test import RequestFactory
from django.utils import timezone

from django_idempotency.contrib.steps.actions import is_write, only_in
from django_idempotency.contrib.steps.admin import StepsPanel
from django_idempotency.contrib.steps.models import Step
from django_idempotency.errors import ConfigurationError
from django_idempotency.stores.orm import ORMStore
from testproject.payments.models import Effect
from tests.support.factories import AdminFactory

from ...functions.helpers import Clock
from . import work
from .test_resuming import guarded, operation
from .work import PROVIDER

pytestmark = [pytest.mark.any_database, pytest.mark.django_db]


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Any]:
    """A database beside that of the steps, with a table of its own."""
    sqlite = {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(tmp_path / "other.sqlite3"),
        "OPTIONS": {},
    }
    connections.settings["other"] = {**connections["default"].settings_dict, **sqlite}
    connection = connections["other"]
    connection.inc_thread_sharing()
    connection.force_debug_cursor = False
    connection.connect()
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE note (label TEXT)")
    yield connection
    connection.close()
    del connections["other"], connections.settings["other"]


def notes(other: Any, statement: str = "SELECT label FROM note") -> list[Any]:
    with other.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall()) if cursor.description else []


WRITES = [
    "INSERT INTO note VALUES ('paid')",
    " /* traced */ update note SET label = 'x'",
    "-- why\ndelete FROM note",
]


def test_comments_in_front_take_no_time() -> None:
    """Many of them, and no write after them: this ends."""
    many = "/* a */" * 5000
    assert not is_write(f"{many} SELECT 1")
    assert is_write(f"{many}/** b **/ -- c\nDELETE FROM note")


def test_a_composed_statement(other: Any) -> None:
    """What psycopg composes is looked at as it is sent."""
    connection = connections["default"]
    if connection.vendor != "postgresql":
        pytest.skip("psycopg is PostgreSQL's")
    from django.db.backends.postgresql.psycopg_any import sql

    write = sql.SQL("INSERT INTO {} VALUES (1)").format(sql.Identifier("note"))
    with (
        only_in("other", "The step 'x'"),
        connection.cursor() as cursor,
        pytest.raises(ConfigurationError),
    ):
        cursor.execute(write)


@pytest.mark.parametrize("statement", WRITES)
def test_a_write_elsewhere_is_refused(clock: Clock, other: Any, statement: str) -> None:
    """Nothing is sent there, and what was written here is rolled back."""

    def both(card: str) -> int:
        order = work.make_order(card)
        notes(other, statement)
        return order

    book = guarded(lambda card: operation().step("order", both, card))
    with pytest.raises(
        ConfigurationError,
        match="'order' writes to the database 'other', and its result is in 'default'",
    ):
        book("visa")
    assert (notes(other), work.labels(), Step.objects.count()) == ([], [], 0)


def test_what_is_allowed(clock: Clock, other: Any) -> None:
    """Reading there is, and writing outside of a step; a step that takes the key answers for
    itself.
    """

    def reads(card: str) -> int:
        assert notes(other) == []
        return work.make_order(card)

    def writes(*, idempotency_key: str) -> None:
        notes(other, WRITES[0])

    def body(card: str) -> Any:
        order = operation().step("order", reads, card)
        operation().step("note", writes)
        notes(other, WRITES[0])
        return order

    guarded(body)("visa")
    assert (len(notes(other)), len(work.labels())) == (2, 1)


def cancel_elsewhere(order: int) -> None:
    """Be an undo that writes to two databases."""
    Effect.objects.create(label="cancelled")
    notes(connections["other"], WRITES[0])


def test_an_undo_is_refused_as_well(clock: Clock, other: Any) -> None:
    """It is not done, and named as what failed."""

    def body(card: str) -> Any:
        operation().step("order", work.make_order, card, undo=cancel_elsewhere)
        return operation().undo_steps()

    assert guarded(body)("visa") is False
    assert Step.objects.get(name="order").error == "django_idempotency.errors.ConfigurationError"
    assert (notes(other), len(work.labels()), PROVIDER.calls) == ([], 1, [])


def test_no_statement_is_added(other: Any) -> None:
    """It looks at statements, and sends none."""
    other.force_debug_cursor = True
    before = len(other.queries_log)
    with only_in("default", "The step 'x'"):
        notes(other)
    assert len(other.queries_log) == before + 1
    other.force_debug_cursor = False


def test_the_admin_follows_the_store(other: Any, rf: RequestFactory) -> None:
    """The steps on a record's page are those of the database that has the store's records."""
    with other.schema_editor() as editor:
        editor.create_model(Step)
    record, request = uuid4(), rf.get("/")
    request.user = AdminFactory()
    now = timezone.now()
    facts = {
        "record": record,
        "run": uuid4(),
        "operation": uuid4(),
        "position": 1,
        "attempt": 1,
        "created_at": now,
    }
    Step.objects.using("other").create(**facts, name="order", state=2, store="other", purge_at=now)
    sections = {
        using: StepsPanel().section(request, record, admin.site, ORMStore(using=using))
        for using in ("default", "other")
    }
    assert sections["default"] == ""
    assert '<th scope="row">order</th>' in sections["other"]
