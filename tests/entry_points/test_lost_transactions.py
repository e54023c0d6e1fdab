"""A lost transaction, whatever ends or replaces it below the guard, is a 503, and nothing is
remembered.
"""

from __future__ import annotations

from itertools import count, product
from typing import Any
from unittest.mock import Mock
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import F

from django_idempotency.core.records import Settlement, Status, Ticket
from django_idempotency.errors import LostRace, OwnershipLost, StoreUnavailable
from django_idempotency.models import IdempotencyRecord
from django_idempotency.stores.base import Guard
from django_idempotency.stores.orm import ORMStore

from .conftest import Connect, effects
from .losing_views import COMMITTED, ROLLED_BACK, VIEWS

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.entry_points.losing_views"),
]

VENDOR = connection.vendor


@pytest.fixture
def send(user: User, connect: Connect, caplog: pytest.LogCaptureFixture) -> Any:
    def send(
        how: str | list[str], *, entry_point: str = "decorated", key: str, goes_on: bool = False
    ) -> Any:
        caplog.clear()
        response = connect(f"/{entry_point}/", user)({"how": how, "goes_on": goes_on}, key=key)
        response.errors = [
            record.message for record in caplog.records if record.levelname == "ERROR"
        ]
        return response

    return send


def assert_lost(response: Any, key: str) -> None:
    assert (response.status_code, response.json()["code"]) == (503, "transaction-lost"), (
        response.content
    )
    assert response["Retry-After"] == "1"
    assert response["Idempotency-Status"] == "failed"  # it has run, and may have committed
    assert any("ended or replaced" in error for error in response.errors)
    record = IdempotencyRecord.objects.get(key=key)
    assert (record.status, record.response_body) == (Status.FREE, None)


def assert_runs_again(response: Any) -> None:
    assert (response.status_code, response.json()) == (201, {"attempt": 2})
    assert "Idempotent-Replayed" not in response


@pytest.mark.parametrize("goes_on", [False, True], ids=["answers", "goes on"])
@pytest.mark.parametrize("how", ROLLED_BACK[VENDOR])
def test_what_was_written_is_gone(send: Any, how: str, goes_on: bool) -> None:
    """No response comes without its writes; the retry runs, and what it wrote is there once."""
    key = str(uuid4())
    assert_lost(send(how, key=key, goes_on=goes_on), key)
    assert effects() == 0
    assert_runs_again(send(how, key=key, goes_on=goes_on))
    assert effects() == 1 + goes_on
    assert "Idempotent-Replayed" in send(how, key=key, goes_on=goes_on)
    assert effects() == 1 + goes_on


@pytest.mark.parametrize("how", COMMITTED[VENDOR])
def test_what_was_written_is_committed(send: Any, how: str) -> None:
    """The commit cannot be undone, so the response does not claim the guard made it; an error says
    what happened.
    """
    key = str(uuid4())
    assert_lost(send(how, key=key), key)
    assert effects() == 1
    assert_runs_again(send(how, key=key))
    assert effects() == 2


@pytest.mark.parametrize("length", [1, 2, 3])
def test_every_order(send: Any, length: int) -> None:
    """Only a view that has left the guard's transaction alone is remembered, whatever it sends past
    Django.
    """
    for statements in product(["BEGIN", "COMMIT", "ROLLBACK"], repeat=length):
        key, before = str(uuid4()), effects()
        first = send(list(statements), key=key)
        ending = [each for each in statements if each != "BEGIN" or VENDOR == "mysql"]
        if ending:
            assert_lost(first, key)
            assert effects() - before == (ending[0] != "ROLLBACK"), statements
            assert_runs_again(send(list(statements), key=key))
        else:
            assert (first.status_code, effects() - before) == (201, 1), statements


@pytest.mark.parametrize("entry_point", VIEWS)
@pytest.mark.parametrize("goes_on", [False, True], ids=["answers", "goes on"])
def test_every_entry_point(send: Any, entry_point: str, goes_on: bool) -> None:
    """Every entry point returns the same problem."""
    key = str(uuid4())
    assert_lost(
        send("ROLLBACK by the driver", entry_point=entry_point, key=key, goes_on=goes_on), key
    )
    assert_runs_again(
        send("ROLLBACK by the driver", entry_point=entry_point, key=key, goes_on=goes_on)
    )
    assert effects() == 1 + goes_on


@pytest.mark.any_database
@pytest.mark.parametrize(
    ("error", "code", "left"),
    [
        (StoreUnavailable, "store-unavailable", "failed"),
        (LostRace, "try-again", "failed"),
        (OwnershipLost, "in-progress", "lost"),
    ],
)
@pytest.mark.parametrize("entry_point", VIEWS)
def test_a_view_whose_settle_failed(  # noqa: PLR0917 - the columns of the table
    send: Any,
    entry_point: str,
    error: type[Exception],
    code: str,
    left: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has run, and perhaps sent a mail: what its writes are rolled back for says so, and never
    that nothing ran.
    """
    key = str(uuid4())
    commits = count()
    commit = ORMStore.commit

    def failing(store: ORMStore, guard: Guard, ticket: Ticket, settlement: Settlement) -> bool:
        if next(commits) == 0:
            raise error
        return commit(store, guard, ticket, settlement)

    monkeypatch.setattr(ORMStore, "commit", failing)
    refused = send([], entry_point=entry_point, key=key)
    assert (refused.status_code, refused.json()["code"]) == (error.status, code)  # type: ignore[attr-defined]
    assert (refused["Idempotency-Status"], refused["Retry-After"], effects()) == (left, "1", 0)
    IdempotencyRecord.objects.update(lease_until=F("created_at"))
    assert_runs_again(send([], entry_point=entry_point, key=key))


@pytest.mark.any_database
@pytest.mark.parametrize("entry_point", VIEWS)
def test_a_store_that_is_away_before_the_view(
    send: Any, entry_point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same problem before the work says that nothing ran."""
    monkeypatch.setattr(ORMStore, "claim", Mock(side_effect=StoreUnavailable))
    refused = send([], entry_point=entry_point, key=str(uuid4()))
    assert (refused.status_code, refused["Idempotency-Status"], effects()) == (503, "refused", 0)
