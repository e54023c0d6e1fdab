"""Activities of Temporal, in the environment that its SDK has for tests: attempted twice, done
once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import User

pytest.importorskip("temporalio")

from temporalio.testing import ActivityEnvironment

from django_idempotency.errors import KeyMissing, RequestMismatch
from testproject.payments.activities import charge_order
from testproject.payments.models import Charge, Effect
from testproject.payments.network import Declined, NetworkDown

pytestmark = [pytest.mark.any_database, pytest.mark.django_db]


def attempt(
    number: int, *arguments: Any, workflow_id: str | None = "order-17", activity_id: str = "1"
) -> int:
    """Let a worker attempt the activity."""
    environment = ActivityEnvironment()
    environment.info = replace(
        environment.info, attempt=number, workflow_id=workflow_id, activity_id=activity_id
    )
    return environment.run(charge_order, *arguments)


def test_the_second_attempt_is_a_replay(user: User) -> None:
    """The first attempt's result was lost on its way to the server, which lets it be attempted
    again.
    """
    assert attempt(1, user.pk, 2499) == attempt(2, user.pk, 2499) == Charge.objects.get().pk
    assert Effect.objects.get().attempt == 1


def test_another_activity_runs(user: User) -> None:
    """An activity is another one by its own id, and by its workflow's."""
    charges = {
        attempt(1, user.pk, 2499),
        attempt(1, user.pk, 2499, activity_id="2"),
        attempt(1, user.pk, 2499, workflow_id="order-18"),
    }
    assert charges == set(Charge.objects.values_list("pk", flat=True))
    assert len(charges) == 3


def test_a_failed_attempt(user: User) -> None:
    """What raised has done nothing, and the next attempt runs; a declined card is a result."""
    with pytest.raises(NetworkDown):
        attempt(1, user.pk, 2499, "eur", "tok_down")
    for number in (2, 3):
        with pytest.raises(Declined):
            attempt(number, user.pk, 2499, "eur", "tok_declined")
    assert not Effect.objects.exists()  # rolled back, each time


def test_what_no_attempt_may_do(user: User) -> None:
    """Another amount is no retry, and what no workflow has started has no key."""
    attempt(1, user.pk, 2499)
    with pytest.raises(RequestMismatch):
        attempt(2, user.pk, 9999)
    with pytest.raises(KeyMissing):
        attempt(1, user.pk, 2499, workflow_id=None)
    assert Charge.objects.get().amount == 2499
