"""ATOMIC_REQUESTS=True: the claim is committed before the view's transaction, and the project's
rollbacks hold.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, connections

from django_idempotency.core.records import Status
from django_idempotency.models import IdempotencyRecord
from tests.stores.helpers import elsewhere

from .conftest import KEY, Connect, Sender, effects
from .test_outcomes import BOUND, DRF, KEPT, PLAIN

pytestmark = pytest.mark.django_db(transaction=True)
outcomes = pytest.mark.urls("tests.entry_points.outcome_views")


@pytest.fixture(autouse=True)
def atomic_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", True)


#: DRF marks the transaction for rollback when it handles an exception: the response is the same,
#: the writes are gone.
RAISED = ("404", "denied", "suspicious", "bad", "malformed")
ROLLED_BACK = {how: (DRF[how][0], DRF[how][1], 0) for how in (*RAISED, "validation", "payment")}
#: Django's own transaction rolls back at any exception.
RAISED_PLAIN = {how: (PLAIN[how][0], PLAIN[how][1], 0) for how in RAISED}
CASES = [
    *(
        (entry_point, how, expected)
        for entry_point in ("decorated", "middleware")
        for how, expected in {**PLAIN, **RAISED_PLAIN}.items()
    ),
    *(
        (entry_point, how, expected)
        for entry_point in ("mixed", "above")
        for how, expected in {**DRF, **ROLLED_BACK}.items()
    ),
]


@outcomes
@pytest.mark.parametrize(("entry_point", "how", "expected"), CASES)
def test_the_table(
    user: User, connect: Connect, entry_point: str, how: str, expected: tuple[int, str, int]
) -> None:
    """Outcomes are as without ATOMIC_REQUESTS, but exceptions that DRF handles roll back, as the
    project asked.
    """
    status, left, written = expected
    send = connect(f"/{entry_point}/", user)
    assert send({"how": how}).status_code == status
    assert effects() == written
    record = IdempotencyRecord.objects.get()
    assert (record.status == Status.COMPLETED, bool(record.digest)) == (
        left == KEPT,
        left in (KEPT, BOUND),
    )
    again = send({"how": how})
    assert ("Idempotent-Replayed" in again) == (left == KEPT)


@outcomes
@pytest.mark.parametrize("entry_point", ["decorated", "middleware", "leased", "mixed", "above"])
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
def test_below_api_view_is_refused(user: User, connect: Connect) -> None:
    """Below @api_view the claim would join the request's transaction: an error says what to
    swap.
    """
    send = connect("/below/", user)
    send.client.raise_request_exception = True
    with pytest.raises(ImproperlyConfigured, match="Swap the two lines"):
        send({"how": "201"})


@outcomes
@pytest.mark.parametrize("entry_point", ["leased", "leased-mixed"])
def test_on_commit_fails_after_a_lease_was_worked_off(
    user: User, connect: Connect, entry_point: str
) -> None:
    """The writes are committed: the client gets the usual error, and no retry writes them again."""
    send = connect(f"/{entry_point}/", user)
    assert send({"how": "hook"}).status_code == 500
    again = send({"how": "hook"})
    assert (again.status_code, again["Idempotent-Replayed"], effects()) == (201, "true", 1)


def test_each_entry_point_claims_first(entry_point: Sender) -> None:
    """While the view runs, others see the claim: it is not in the transaction of the work.

    Behind DRF's permissions it is.
    """
    seen: list[bool] = []

    def look(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith("INSERT") and "payments_effect" in sql:
            seen.append(elsewhere(IdempotencyRecord.objects.filter(key=KEY).exists))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(look):
        assert entry_point().status_code == 201
    assert seen == [not entry_point.headers]


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
