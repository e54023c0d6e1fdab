"""ATOMIC_REQUESTS=True: the claim joins the transaction of the request.

A remembered response is committed with it. A failure leaves no trace. A lease is excluded, or
refused.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
from django.contrib.auth.models import User
from django.db import connection, connections, transaction

from django_idempotency import idempotent
from django_idempotency.core.records import Status
from django_idempotency.errors import LeaseInTransaction, StoreUnavailable
from django_idempotency.models import IdempotencyRecord
from django_idempotency.stores.orm import ORMStore
from tests.stores.helpers import elsewhere

from .conftest import KEY, Connect, Sender, effects
from .outcome_views import Pay
from .test_outcomes import BOUND, DRF, KEPT, PLAIN

pytestmark = pytest.mark.django_db(transaction=True)
outcomes = pytest.mark.urls("tests.entry_points.outcome_views")


@pytest.fixture(autouse=True)
def atomic_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", True)


#: There is no record: it was rolled back with the work.
NO_RECORD = "no record"
FAILED = ("500", "503", "raise", "integrity")
#: Django turns these exceptions into a status below 500, and rolls the request back.
RAISED = ("404", "denied", "suspicious", "bad", "malformed")
NO_TRACE_PLAIN = {how: (PLAIN[how][0], NO_RECORD, 0) for how in (*FAILED, *RAISED)}
#: REST framework makes a response of some exceptions, and marks what they wrote for rollback. A
#: response that is remembered stays, and the others go with their writes.
HANDLED = {"404": (404, KEPT, 0), "payment": (402, KEPT, 0)}
NO_TRACE_DRF = {how: (DRF[how][0], NO_RECORD, 0) for how in (*FAILED, *RAISED, "validation")}
CASES = [
    *(
        (entry_point, how, expected)
        for entry_point in ("decorated", "middleware")
        for how, expected in {**PLAIN, **NO_TRACE_PLAIN}.items()
    ),
    *(
        (entry_point, how, expected)
        for entry_point in ("mixed", "above", "below")
        for how, expected in {**DRF, **NO_TRACE_DRF, **HANDLED}.items()
    ),
]


@outcomes
@pytest.mark.parametrize(("entry_point", "how", "expected"), CASES)
def test_the_table(
    user: User, connect: Connect, entry_point: str, how: str, expected: tuple[int, str, int]
) -> None:
    """What is rolled back takes its record with it. All else is as without ATOMIC_REQUESTS."""
    status, left, written = expected
    send = connect(f"/{entry_point}/", user)
    assert send({"how": how}).status_code == status
    assert effects() == written
    found = [
        (record.status == Status.COMPLETED, bool(record.digest))
        for record in IdempotencyRecord.objects.all()
    ]
    assert found == ([] if left == NO_RECORD else [(left == KEPT, left in (KEPT, BOUND))])
    again = send({"how": how})
    assert again.status_code == status
    assert ("Idempotent-Replayed" in again) == (left == KEPT)


@outcomes
@pytest.mark.parametrize("entry_point", ["decorated", "middleware", "mixed", "above", "below"])
@pytest.mark.parametrize("key", [None, KEY], ids=["without a key", "with a key"])
def test_an_exception_rolls_back_with_and_without_a_key(
    user: User, connect: Connect, entry_point: str, key: str | None
) -> None:
    """What a view wrote before it raised is gone under every guard: the project has asked for
    that.
    """
    assert connect(f"/{entry_point}/", user)({"how": "raise"}, key=key).status_code == 500
    assert effects() == 0


@outcomes
@pytest.mark.parametrize("entry_point", ["decorated", "middleware", "mixed", "above", "below"])
@pytest.mark.parametrize("verb", ["claim", "commit"])
def test_a_problem_in_place_of_a_response(  # noqa: PLR0917 - the columns of the table
    user: User,
    connect: Connect,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    entry_point: str,
    verb: str,
) -> None:
    """The view could not derive a key without the store, or its response could not be stored: what
    it has written is rolled back with the request.
    """
    settings.IDEMPOTENCY = {"ON_STORE_FAILURE": "open"}
    monkeypatch.setattr(ORMStore, verb, Mock(side_effect=StoreUnavailable))
    response = connect(f"/{entry_point}/", user)({"how": "derive"})
    assert (response.status_code, response.json()["code"]) == (503, "store-unavailable")
    assert (effects(), IdempotencyRecord.objects.count()) == (0, 0)


@outcomes
@pytest.mark.parametrize("entry_point", ["leased", "leased-mixed"])
@pytest.mark.parametrize("key", [None, KEY], ids=["without a key", "with a key"])
def test_a_lease_is_excluded(
    user: User, connect: Connect, entry_point: str, key: str | None
) -> None:
    """As @transaction.non_atomic_requests excludes a view: no transaction is open around it, with a
    key or without.
    """
    assert connect(f"/{entry_point}/", user)({"how": "raise"}, key=key).status_code == 500
    assert effects() == 1
    assert IdempotencyRecord.objects.filter(status=Status.FREE).count() == (key is not None)


def test_the_marker_of_an_excluded_view() -> None:
    """It is Django's own, on a class as on a function."""
    leased: Any = idempotent(guarantee="lease")
    atomic: Any = idempotent()
    marked: Any = transaction.non_atomic_requests(lambda request: None)
    assert vars(marked)["_non_atomic_requests"] == set(connections)
    for view in (leased(type("Leased", (Pay,), {})).as_view(), leased(lambda request: None)):
        assert vars(view)["_non_atomic_requests"] == set(connections)
    for view in (atomic(type("Atomic", (Pay,), {})).as_view(), atomic(lambda request: None)):
        assert "_non_atomic_requests" not in vars(view)


@outcomes
@pytest.mark.parametrize("entry_point", ["leased-below", "leased-later", "middleware"])
def test_a_lease_inside_is_refused(
    user: User, connect: Connect, settings: Any, entry_point: str
) -> None:
    """Where nothing could exclude the view: below @api_view, under a policy that depends on the
    request, and by the middleware.
    """
    if entry_point == "middleware":
        settings.IDEMPOTENCY = {"GUARANTEE": "lease"}
    send = connect(f"/{entry_point}/", user)
    assert send({"how": "201"}, key=None).status_code == 201
    send.client.raise_request_exception = True
    with pytest.raises(LeaseInTransaction, match="non_atomic_requests"):
        send({"how": "201"})
    assert (effects(), IdempotencyRecord.objects.count()) == (1, 0)


def test_the_claim_joins(entry_point: Sender) -> None:
    """Others see it after the COMMIT of the request, with what the view has written."""
    seen: list[bool] = []

    def look(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith("INSERT") and "payments_effect" in sql:
            seen.append(elsewhere(IdempotencyRecord.objects.filter(key=KEY).exists))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(look):
        assert entry_point().status_code == 201
    assert seen == [False]
    assert elsewhere(IdempotencyRecord.objects.filter(key=KEY).exists)


def test_a_transaction_is_open_without_a_key(entry_point: Sender) -> None:
    """An unguarded request is as atomic as the project asked."""
    open_in: list[bool] = []

    def look(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith("INSERT") and "payments_effect" in sql:
            open_in.append(connection.in_atomic_block)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(look):
        status = entry_point(key=None).status_code
    assert (status, open_in) in [(201, [True]), (400, [])]  # 400: the route requires a key
