"""How a refusal ends: by its status, by what was written, and whether it came from the view at
all.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import connection, connections, transaction

from django_idempotency import Policy
from django_idempotency.core.records import Status
from django_idempotency.models import IdempotencyRecord
from django_idempotency.stores.orm.dialects import dialect
from testproject.payments.models import Effect

from .conftest import Connect, effects
from .refusing_views import NOTHING, WRITES, written

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.entry_points.refusing_views"),
]


@pytest.fixture
def send(user: User, connect: Connect) -> Any:
    def send(view: str, *, key: str | None = "k" * 20, **body: Any) -> Any:
        return connect(f"/{view}/", user)(body, key=key)

    return send


def is_remembered() -> bool:
    record = IdempotencyRecord.objects.get()
    assert record.status in (Status.COMPLETED, Status.FREE)
    return bool(record.status == Status.COMPLETED)


@pytest.mark.parametrize("how", NOTHING)
@pytest.mark.parametrize("atomic_requests", [False, True], ids=["autocommit", "ATOMIC_REQUESTS"])
def test_work_that_wrote_nothing(
    send: Any, how: str, atomic_requests: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its refusal frees the key, also for a corrected request, whatever its status is."""
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", atomic_requests)
    for status in (402, 404, 422):
        assert send("written", how=how, status=status)["Idempotency-Status"] == "released"
        assert not is_remembered()
    assert (send("written", pays=True).status_code, effects()) == (201, 1)


@pytest.mark.parametrize("how", WRITES)
@pytest.mark.parametrize("atomic_requests", [False, True], ids=["autocommit", "ATOMIC_REQUESTS"])
def test_work_that_wrote(
    send: Any, how: str, atomic_requests: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its refusal is remembered with what it wrote, by whatever way, also a status that the table
    drops.
    """
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", atomic_requests)
    for status in (400, 402):
        IdempotencyRecord.objects.all().delete()
        assert send("written", how=how, status=status)["Idempotency-Status"] == "created"
        count = effects()
        retry = send("written", how=how, status=status)
        assert (retry.status_code, retry["Idempotent-Replayed"], effects()) == (
            status,
            "true",
            count,
        )


@pytest.mark.parametrize("status", [401, 408, 425, 429])
def test_a_request_that_is_meant_to_come_again(send: Any, status: int) -> None:
    """Its key is free, whatever was written; that is committed."""
    assert send("written", how="the ORM", status=status)["Idempotency-Status"] == "released"
    assert (is_remembered(), effects()) == (False, 1)


def test_a_write_of_an_earlier_request_is_not_counted(send: Any) -> None:
    """The server's counters may include those of the same connection's last transactions."""
    assert send("written", key="a" * 20, pays=True).status_code == 201
    assert send("written", how="nothing", status=402)["Idempotency-Status"] == "released"


@pytest.mark.parametrize(("how", "remembered"), [("writes", True), ("reads", False)])
def test_a_refusal_that_is_raised(send: Any, how: str, remembered: bool) -> None:
    """REST framework's exception ends as the response that it becomes."""
    assert send("raising", how=how, status=400).status_code == 400
    assert (is_remembered(), effects()) == (remembered, int(remembered))


def test_a_raised_404(send: Any) -> None:
    """It wrote nothing, so a later request may find it."""
    assert send("not-found").status_code == 404
    assert not is_remembered()


def test_a_raised_refusal_in_atomic_requests(send: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """REST framework rolls back what was written, so nothing was done, and no trace is left."""
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", True)
    refused = send("raising", how="writes", status=422)
    assert (refused.status_code, refused["Idempotency-Status"]) == (422, "released")
    assert (IdempotencyRecord.objects.count(), effects()) == (0, 0)


# ---------------------------------------------------------------------------- keys from the payload


@pytest.mark.parametrize("status", [402, 404, 422])
def test_a_key_that_the_client_did_not_choose(send: Any, status: int) -> None:
    """A declined order can be paid under the same key: its client cannot make another one."""
    assert send("selected", key=None, order=7, how="a read", status=status).status_code == status
    assert not is_remembered()
    assert send("selected", key=None, order=7, pays=True).status_code == 201
    assert send("selected", key=None, order=7, pays=True)["Idempotent-Replayed"] == "true"
    assert effects() == 1


def test_a_key_that_was_not_chosen_and_a_write(send: Any) -> None:
    """What was done under it is not done twice."""
    assert send("selected", key=None, order=7, how="the ORM", status=400).status_code == 400
    assert is_remembered()


def test_a_header_on_such_a_route(send: Any) -> None:
    """That key is the client's own, and the table counts."""
    assert send("selected", order=7, how="a read", status=402).status_code == 402
    assert is_remembered()


def test_the_policys_own_word_comes_first(send: Any) -> None:
    """A set of statuses says what is remembered, whoever chose the key."""
    assert send("selected-kept", key=None, order=7, how="a read", status=402).status_code == 402
    assert is_remembered()


def test_it_is_for_atomic_only() -> None:
    """Under a lease nobody counts what was written."""
    with pytest.raises(ValueError, match=r'keep="written" means nothing with guarantee="lease"'):
        Policy(keep="written", guarantee="lease")


# ----------------------------------------------------------------------------------------- suspects


@pytest.mark.parametrize("status", [402, 404, 410, 422])
def test_what_did_nothing_is_no_suspect(send: Any, status: int) -> None:
    """After a remembered refusal a client makes a new key, and is not taken for a duplicate of what
    was refused.
    """
    order = str(uuid4())
    assert (
        send("suspected", order=order, how="a read", status=status)["Idempotency-Status"]
        == "created"
    )
    assert send("suspected", key="b" * 20, order=order, pays=True).status_code == 201
    third = send("suspected", key="c" * 20, order=order, pays=True)
    assert (third.status_code, third.json()["code"]) == (409, "possible-duplicate")
    assert effects() == 1


def test_a_refusal_that_wrote_is_a_suspect(send: Any) -> None:
    """Something was done under its key."""
    order = str(uuid4())
    assert send("suspected", order=order, how="the ORM", status=402).status_code == 402
    assert send("suspected", key="b" * 20, order=order, pays=True).status_code == 409


# --------------------------------------------------------------------------------------- challenges


@pytest.mark.parametrize("view", ["by-table", "leased", "written", "kept"])
def test_a_challenge(send: Any, view: str) -> None:
    """A refusal that asks for a payment or for credentials frees the key for the request that
    brings them.
    """
    challenge = {"WWW-Authenticate": 'Payment id="1"'}
    first = send(view, how="a read", status=402, headers=challenge)
    assert (first.status_code, first["Idempotency-Status"]) == (402, "released")
    assert send(view, pays=True).status_code == 201
    assert effects() == 1


# --------------------------------------------------- what stands before the view, by the middleware


@pytest.mark.parametrize(
    ("view", "status"), [("permitted", 302), ("only-get", 405), ("classy", 405)]
)
def test_what_refused_before_the_view(send: Any, view: str, status: int) -> None:
    """A login redirect and a method that is not allowed are not the view's response, and are not
    remembered.
    """
    response = send(view)
    assert (response.status_code, response["Idempotency-Status"]) == (status, "released")
    assert (is_remembered(), effects()) == (False, 0)


@pytest.mark.parametrize(("view", "status"), [("signed-in", 302), ("refuses-itself", 405)])
def test_what_the_view_itself_responds(send: Any, view: str, status: int) -> None:
    """The same statuses of the view itself are remembered."""
    assert send(view).status_code == status
    assert (is_remembered(), effects()) == (True, 1)


@pytest.mark.skipif("connection.vendor != 'postgresql'", reason="The counters are PostgreSQL's")
def test_without_counters(send: Any) -> None:
    """A server that counts nothing leaves a doubt, where a statement may have written."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER ROLE CURRENT_USER SET track_counts = off")
    connection.close()
    try:
        assert send("written", how="no row", status=402)["Idempotency-Status"] == "created"
        assert (
            send("written", key="b" * 20, how="a read", status=402)["Idempotency-Status"]
            == "released"
        )
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER ROLE CURRENT_USER RESET track_counts")
        connection.close()


@pytest.mark.parametrize(("how", "status"), [("dry run", 302), ("error", 500), ("refusal", 404)])
def test_a_check_that_cannot_be_asked(send: Any, how: str, status: int) -> None:
    """In a transaction that is marked for rollback no query works: the view's own end stays what it
    is.
    """
    Effect.objects.create(label="known", attempt=0)
    response = send("tested", how=how)
    assert response.status_code == status
    if how == "error":
        assert response.json()["code"] == "writes-rolled-back"


def test_a_question_that_fails(send: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In doubt the work wrote, and what it wrote stays."""

    def fail(self: Any, connection: Any, before: Any, table: str) -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SELECT no_such_column FROM nowhere")
        return False

    monkeypatch.setattr(
        f"{type(dialect(connection)).__module__}.{type(dialect(connection)).__name__}.has_written",
        fail,
    )
    assert send("written", how="the ORM", status=404)["Idempotency-Status"] == "created"
    assert (is_remembered(), effects()) == (True, 1)


@pytest.mark.django_db
def test_what_was_written_before_the_work(user: User, rf: Any) -> None:
    """In a transaction that the work has joined, such as that of a project's test case, only its
    own writes count.
    """
    with transaction.atomic():
        Effect.objects.create(label="a fixture", attempt=0)
        request = rf.post(
            "/written/",
            {"how": "a read", "status": 404},
            "application/json",
            headers={"Idempotency-Key": "k" * 20},
        )
        request.user = user
        assert written(request)["Idempotency-Status"] == "released"
