"""Celery tasks: `charge_order.delay(order_id="17", …)`, once or twice."""

from __future__ import annotations

from datetime import timedelta

from django_idempotency import idempotent_function
from testproject.celery import app

from . import work
from .network import Declined
from .work import Attempt


@app.task(answers=(Declined,))
@idempotent_function(
    key="order_id",
    validate="[amount, currency]",
    # Longer than a message may lie anywhere, the dead letters included.
    expires_after=timedelta(days=7),
    keep_exceptions=Declined,
)
def charge_order(
    order_id: str, user_id: int, amount: int, currency: str = "eur", card: str = "tok_visa"
) -> int:
    """Charge for an order, once, however often the message comes. Returns the charge's number."""
    charge = work.charge(
        user_id=user_id, attempt=Attempt.of_call(), amount=amount, currency=currency, card=card
    )
    return charge.pk
