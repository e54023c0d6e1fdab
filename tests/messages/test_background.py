"""Tasks of django.tasks: a backend may run one twice, and its work is done once."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User

from testproject.payments.background import acharge_order, charge_order
from testproject.payments.models import Charge, Effect

from .backends import ImmediateBackend, TwiceBackend

pytestmark = pytest.mark.django_db
both = pytest.mark.parametrize("task", [charge_order, acharge_order], ids=["sync", "async"])


@pytest.fixture
def order(user: User) -> dict[str, Any]:
    return {"order_id": "o-1", "user_id": user.pk, "amount": 2499}


def enqueue(backend: type[ImmediateBackend], task: Any, order: dict[str, Any]) -> Any:
    return backend("default", {}).enqueue(task, [], order)


@both
def test_run_once(task: Any, order: dict[str, Any]) -> None:
    """`@task` takes the decorated function; its result is the task's."""
    result = task.enqueue(**order)
    assert result.return_value == Charge.objects.get().pk


@both
def test_run_twice(task: Any, order: dict[str, Any]) -> None:
    """The second run succeeds too, with the first one's result."""
    result = enqueue(TwiceBackend, task, order)
    assert result.return_value == Charge.objects.get().pk
    assert Effect.objects.get().attempt == 1


@both
def test_enqueued_twice(task: Any, order: dict[str, Any]) -> None:
    """A caller that was unsure enqueues again. The order decides, not the task's id."""
    results = [task.enqueue(**order) for _ in range(2)]
    assert results[0].id != results[1].id
    assert [result.return_value for result in results] == [Charge.objects.get().pk] * 2


def test_another_amount(order: dict[str, Any]) -> None:
    """The same order for more money is a mistake: its task fails, and says why."""
    charge_order.enqueue(**order)
    result = charge_order.enqueue(**{**order, "amount": 9999})
    assert [error.exception_class_path for error in result.errors] == [
        "django_idempotency.errors.RequestMismatch"
    ]
    assert Charge.objects.get().amount == 2499


@both
def test_a_failure(task: Any, order: dict[str, Any]) -> None:
    """The network was down twice: nothing was remembered, and the next run is attempt 3."""
    failed = enqueue(TwiceBackend, task, {**order, "card": "tok_down"})
    assert len(failed.errors) == 1
    assert task.enqueue(**order).return_value == Charge.objects.get().pk
    assert Effect.objects.latest("pk").attempt == 3


@both
def test_a_refusal(task: Any, order: dict[str, Any]) -> None:
    """A declined card is a result: it is not charged again."""
    for _ in range(2):
        result = task.enqueue(**order, card="tok_declined")
        assert [error.exception_class_path for error in result.errors] == [
            "testproject.payments.network.Declined"
        ]
    assert not Charge.objects.exists()


def test_from_async_code(order: dict[str, Any]) -> None:
    """`aenqueue()` behaves as `enqueue()`."""

    async def again() -> list[Any]:
        return [await acharge_order.aenqueue(**order) for _ in range(2)]

    results = async_to_sync(again)()
    assert [result.return_value for result in results] == [Charge.objects.get().pk] * 2
