"""Batches on the database: the cost of each record, and each record's own transaction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, connection, reset_queries, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_idempotency import idempotent_function
from django_idempotency.contrib.batches import process_batch
from django_idempotency.errors import LeaseInTransaction
from django_idempotency.models import IdempotencyRecord
from testproject.payments.models import Effect
from tests.functions.helpers import ORM
from tests.stores.helpers import committed
from tests.support.combining import KIND

from .helpers import outcomes

#: Statements per record, with BEGIN and COMMIT, in addition to the handler's own.
FIRST = {"sqlite": 6, "postgresql": 3, "mariadb": 7, "mysql": 11}
REPLAY = {"sqlite": 1, "postgresql": 1, "mariadb": 2, "mysql": 1}


@pytest.fixture(autouse=True)
def records(db: None) -> Iterator[None]:
    with override_settings(IDEMPOTENCY={"STORES": {"default": ORM}}):
        yield
    Effect.objects.all().delete()
    User.objects.all().delete()


@idempotent_function(key="record.id")
def note(record: dict[str, Any]) -> int:
    Effect.objects.create(label=str(record["id"]))
    return int(record["id"])


@idempotent_function
def sign_up(name: str) -> str:
    User.objects.create(username=name)
    if name == "raises":
        raise ValueError
    return name


@committed
def test_five_hundred_records() -> None:
    """Five hundred records cost as many statements as five hundred calls: none more for the
    batch.
    """
    batch = [{"id": number} for number in range(500)]
    note({"id": "-1"})  # opens a connection and builds the statements
    for outcome, each in (
        ("succeeded", FIRST[KIND] + 1),
        ("replayed", REPLAY[KIND]),
    ):
        reset_queries()  # Django keeps the last 9,000
        with CaptureQueriesContext(connection) as sent:
            report = process_batch(batch, note)
        assert len(sent) == 500 * each
        assert [item.result for item in getattr(report, outcome)] == list(range(500))
    assert Effect.objects.count() == 501


@committed
def test_each_has_its_own_transaction() -> None:
    """A failing record's writes are rolled back, and nothing else."""
    User.objects.create(username="taken")
    report = process_batch(["one", "raises", "taken", "two"], sign_up)
    assert outcomes(report) == {"succeeded": [0, 3], "failed": [1, 2]}
    assert isinstance(report.failed[1].error, IntegrityError)
    assert set(User.objects.values_list("username", flat=True)) == {"taken", "one", "two"}


@committed
def test_inside_an_open_transaction() -> None:
    """Each record has a savepoint: a failing statement affects neither the others nor the
    caller.
    """
    with transaction.atomic():
        User.objects.create(username="taken")
        report = process_batch(["one", "raises", "taken", "two", "one"], sign_up)
        User.objects.create(username="after")
    assert outcomes(report) == {"succeeded": [0, 3], "replayed": [4], "failed": [1, 2]}
    assert set(User.objects.values_list("username", flat=True)) == {"taken", "one", "two", "after"}
    assert outcomes(process_batch(["one", "two"], sign_up)) == {"replayed": [0, 1]}


@committed
def test_a_rollback_of_the_caller() -> None:
    """A rollback of the caller undoes effects and records together."""

    class Undone(Exception):
        pass

    with pytest.raises(Undone), transaction.atomic():  # noqa: PT012
        process_batch(["one", "two"], sign_up)
        raise Undone
    assert (User.objects.count(), IdempotencyRecord.objects.count()) == (0, 0)


@committed
def test_a_lease_inside_an_open_transaction() -> None:
    """Each record is refused, like any call."""

    @idempotent_function(guarantee="lease", key_prefix="send")
    def send(record: int) -> None: ...

    with transaction.atomic():
        report = process_batch([1, 2], send)
    assert {type(item.error) for item in report.failed} == {LeaseInTransaction}
