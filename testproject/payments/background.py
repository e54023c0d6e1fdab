"""Tasks for django.tasks: `charge_order.enqueue(order_id="17", …)`, once or twice."""

from __future__ import annotations

from django_idempotency import idempotent_function

from . import work
from .network import Declined
from .work import Attempt

try:
    from django.tasks import task
except ImportError:  # Django 5.2: the package django-tasks
    from django_tasks import task  # type: ignore[no-redef]


@task()
@idempotent_function(
    key="order_id", validate="[amount, currency]", keep_exceptions=Declined, wait=5
)
def charge_order(
    order_id: str, user_id: int, amount: int, currency: str = "eur", card: str = "tok_visa"
) -> int:
    """Charge for an order, once, however often the task runs. Returns the charge's number."""
    charge = work.charge(
        user_id=user_id, attempt=Attempt.of_call(), amount=amount, currency=currency, card=card
    )
    return charge.pk


@task()
@idempotent_function(key="order_id", guarantee="lease", keep_exceptions=Declined, wait=5)
async def acharge_order(
    order_id: str, user_id: int, amount: int, currency: str = "eur", card: str = "tok_visa"
) -> int:
    """See charge_order(). No transaction can cover an async task: the guarantee is a lease."""
    charge = await work.acharge(
        user_id=user_id, attempt=Attempt.of_call(), amount=amount, currency=currency, card=card
    )
    return charge.pk
