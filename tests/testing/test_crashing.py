"""crash_matrix() kills where it says, finds what happens twice, and says where it cannot work."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import connection

from django_idempotency import idempotent_function
from django_idempotency.testing import CrashPoint, crash_matrix
from testproject.payments.models import Effect

pytestmark = [pytest.mark.any_database, pytest.mark.slow]
in_a_database = pytest.mark.django_db(transaction=True)


def charge(key: str) -> int:
    """Write one row, unguarded."""
    Effect.objects.create(label="charge", idempotency_key=key)
    return 1


@idempotent_function(key="key", guarantee="lease")
def leased(key: str) -> int:
    return charge(key)


def twice(act: Callable[[str], int]) -> list[str]:
    """Return the places where a death makes two rows of one."""
    return [
        str(crash.point).partition(", ")[2]
        for crash in crash_matrix(act)
        if Effect.objects.filter(idempotency_key=crash.key).count() == 2
    ]


guarded = idempotent_function(key="key", guarantee="atomic")(charge)


def test_a_point_says_where_it_is() -> None:
    """A failure's text names the place."""
    assert (
        str(CrashPoint(number=3, at="step", when="during", name="undo pay"))
        == "point 3, during the step 'undo pay'"
    )
    assert str(CrashPoint(number=9, at="end", when="after")) == "point 9, at the end"


@in_a_database
def test_what_is_guarded_happens_once() -> None:
    """Under `atomic` a death before the commit leaves nothing, and after it all."""
    crashes = list(crash_matrix(guarded))
    assert [crash.point.number for crash in crashes] == list(range(1, len(crashes) + 1))
    assert ("statement", "before", "INSERT payments_effect") in {
        (each.point.at, each.point.when, each.point.name) for each in crashes
    }
    assert {crash.result for crash in crashes} == {1}
    assert {Effect.objects.filter(idempotency_key=crash.key).count() for crash in crashes} == {1}


@in_a_database
def test_what_is_not_guarded_happens_twice() -> None:
    """Without a guard, and under `lease` without a step, a death after the write makes two."""
    assert "at the end" in twice(charge)
    assert twice(leased)
    assert "at the end" not in twice(leased)  # it has remembered the result


@in_a_database
def test_a_run_that_fails() -> None:
    """An exception that is not a result is reported with its traceback; one that is, is yielded."""

    def fails(key: str) -> None:
        Effect.objects.exists()
        raise LookupError(key)

    with pytest.raises(AssertionError, match="LookupError: crash-"):
        list(crash_matrix(fails))
    assert {type(crash.result) for crash in crash_matrix(fails, raises=LookupError)} == {
        LookupError
    }


@in_a_database
def test_runs_that_differ() -> None:
    """A run that does not come to a point is an error, and not a death that was survived."""

    def differs(key: str) -> None:
        if not Effect.objects.exists():
            charge(key)

    with pytest.raises(AssertionError, match="not reached"):
        list(crash_matrix(differs))


@pytest.mark.django_db
def test_a_transaction_is_refused() -> None:
    """Other processes cannot see what the test has written."""
    connection.ensure_connection()
    with pytest.raises(RuntimeError, match="TransactionTestCase"):
        list(crash_matrix(charge))
