"""A success is what is committed: one whose writes an error has rolled back is neither sent nor
remembered.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, connections

from django_idempotency import idempotent_function
from django_idempotency.core.records import Status
from django_idempotency.errors import WritesRolledBack
from django_idempotency.models import IdempotencyRecord
from testproject.payments.models import Effect
from tests.stores.test_endings import swallow_a_deadlock

from .conftest import Connect, effects
from .swallowing_views import ASKED, ATOMIC, BROKEN, EVERYWHERE, HARMLESS, LEASED, OTHERS, write

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.entry_points.swallowing_views"),
]
WAYS = BROKEN[connection.vendor]


@pytest.fixture
def send(user: User, connect: Connect, caplog: pytest.LogCaptureFixture) -> Any:
    def send(entry_point: str, how: str, **more: Any) -> Any:
        caplog.clear()
        response = connect(f"/{entry_point}/", user)({"how": how, **more})
        response.errors = [
            each
            for each in caplog.records
            if each.levelno == logging.ERROR and each.name == "django_idempotency"
        ]
        return response

    return send


@pytest.fixture(autouse=True)
def asked() -> None:
    ASKED.clear()


@pytest.fixture(params=[False, True], ids=["autocommit", "ATOMIC_REQUESTS"])
def atomic_requests(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", request.param)
    return bool(request.param)


def assert_withheld(response: Any, error: str | None) -> None:
    """The problem and the log name the caught error, and nothing is committed."""
    said = response.json()
    assert (response.status_code, said["code"]) == (500, "writes-rolled-back"), response.content
    assert (error or "an error") in said["detail"]
    assert "its own atomic()" in said["detail"]
    assert (said["retry"], response["Idempotency-Status"]) == ("same-key", "failed")
    assert "Idempotent-Replayed" not in response
    (logged,) = response.errors
    assert (logged.exc_info is None) == (error is None)
    if error is not None:
        assert logged.exc_info[0].__name__ == error
    assert effects() == 0


def assert_bound() -> None:
    """The key is free for the same request only."""
    record = IdempotencyRecord.objects.get()
    assert (record.status, record.response_body, bool(record.digest)) == (Status.FREE, None, True)


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("entry_point", ATOMIC)
def test_a_caught_error(send: Any, entry_point: str, how: str, atomic_requests: bool) -> None:
    """The retry runs again, and its success is remembered. Under ATOMIC_REQUESTS no trace is
    left.
    """
    assert_withheld(send(entry_point, how), WAYS[how][1])
    if atomic_requests:
        assert IdempotencyRecord.objects.count() == 0
    else:
        assert_bound()
        assert send(entry_point, how, another="body").status_code == 422
    retry = send(entry_point, how)
    assert (retry.status_code, effects()) == (201, 1)
    assert send(entry_point, how)["Idempotent-Replayed"] == "true"
    assert effects() == 1


@pytest.mark.parametrize("entry_point", ATOMIC)
def test_a_success_that_is_dropped(send: Any, entry_point: str) -> None:
    """It is withheld, too: the client would believe it."""
    assert_withheld(send(entry_point, "the ORM", drop=True), "IntegrityError")
    assert_bound()


@pytest.mark.parametrize("entry_point", ATOMIC)
def test_a_dry_run(send: Any, entry_point: str, atomic_requests: bool) -> None:
    """The project's own mark is its word: its response is sent, nothing is remembered, and any
    request may follow.
    """
    first = send(entry_point, "dry run")
    assert (first.status_code, first["Idempotency-Status"], first.errors) == (201, "released", [])
    found = [(each.status, bool(each.digest)) for each in IdempotencyRecord.objects.all()]
    assert found == ([] if atomic_requests else [(Status.FREE, False)])
    assert effects() == 0
    assert send(entry_point, "dry run", another="body").status_code == 201
    assert effects() == 1


@pytest.mark.parametrize("entry_point", ["decorated", "mixed"])
@pytest.mark.parametrize("how", ["undone block", "guarded call"])
def test_a_mark_that_a_block_took_off(send: Any, entry_point: str, how: str) -> None:
    """Only the mark that is there at the end counts."""
    response = send(entry_point, how)
    assert (response.status_code, response.json()["code"]) == (500, "writes-rolled-back")
    assert effects() == 0


@pytest.mark.parametrize("entry_point", ATOMIC)
def test_an_error_in_a_block_of_its_own(send: Any, entry_point: str) -> None:
    """A savepoint has undone it: the rest is committed with the response."""
    assert send(entry_point, "a savepoint")["Idempotency-Status"] == "created"
    assert effects() == 1


@pytest.mark.skipif(
    "connection.vendor == 'postgresql'", reason="There each error aborts the transaction"
)
@pytest.mark.parametrize("how", HARMLESS)
def test_an_error_that_undoes_only_its_statement(send: Any, how: str) -> None:
    """The rest is committed with the response."""
    assert send("decorated", how)["Idempotency-Status"] == "created"
    assert effects() == 1


@pytest.mark.parametrize("how", EVERYWHERE)
@pytest.mark.parametrize("entry_point", LEASED)
@pytest.mark.usefixtures("atomic_requests")
def test_a_lease(send: Any, entry_point: str, how: str) -> None:
    """No transaction is open around it, also under ATOMIC_REQUESTS: what it has written stays, and
    is remembered.
    """
    assert send(entry_point, how)["Idempotency-Status"] == "created"
    assert send(entry_point, how)["Idempotent-Replayed"] == "true"
    assert effects() == 1


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize(("status", "remembered"), [(409, False), (422, True)])
def test_a_refusal_stays_what_it_is(send: Any, how: str, status: int, remembered: bool) -> None:
    """A view that meets a duplicate and refuses has said the truth: nothing was done."""
    assert send("decorated", how, status=status).status_code == status
    record = IdempotencyRecord.objects.get()
    assert (record.status == Status.COMPLETED, effects()) == (remembered, 0)


@pytest.mark.usefixtures("atomic_requests")
def test_a_refusal_of_rest_framework(send: Any, atomic_requests: bool) -> None:
    """What its exception handler marks is a refusal, and remembered like any other."""
    assert [send("handled", "")["Idempotency-Status"] for _ in range(2)] == ["created", "replayed"]
    assert effects() == (0 if atomic_requests else 1)


@pytest.mark.parametrize("how", WAYS)
def test_a_function(how: str) -> None:
    """Its caller gets an exception of that name, with the caught error as its cause; the next call
    runs.
    """

    @idempotent_function(key="order", key_prefix=f"swallows {how}")
    def work(order: int) -> str:
        row = write()
        if IdempotencyRecord.objects.get().attempt == 1 and not ran:
            ran.append(order)
            WAYS[how][0](row)
        return "done"

    ran: list[int] = []
    with pytest.raises(WritesRolledBack) as caught:
        work(1)
    error = WAYS[how][1]
    assert type(caught.value.__cause__).__name__ == (error or "NoneType")
    assert effects() == 0
    assert (work(1), work(1), effects()) == ("done", "done", 1)


@pytest.mark.skipif(
    "connection.vendor != 'mysql'", reason="InnoDB rolls back all for a deadlock, and marks nothing"
)
@pytest.mark.usefixtures("atomic_requests")
def test_a_deadlock(send: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has begun the transaction, a caught deadlock has undone it."""
    rows = [Effect.objects.create(label=label, attempt=0) for label in ("mine", "theirs")]

    def deadlock(_: Effect) -> None:
        swallow_a_deadlock(*rows)

    monkeypatch.setitem(OTHERS, "a deadlock", deadlock)
    response = send("decorated", "a deadlock")
    assert (response.status_code, response.json()["code"]) == (500, "writes-rolled-back"), (
        response.content
    )
    assert "OperationalError" in response.json()["detail"]
    assert effects() == len(rows)
