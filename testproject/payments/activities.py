"""An activity of Temporal: a worker runs it, perhaps twice, and its charge is made once."""

from __future__ import annotations

from typing import Any

from temporalio import activity

from django_idempotency import idempotent_function

from . import work
from .network import Declined
from .work import Attempt


def attempted(_arguments: Any) -> list[str | None]:
    """Identify the running activity: its attempts have the same ids."""
    info = activity.info()
    return [info.workflow_id, info.activity_id]


@activity.defn
@idempotent_function(
    key=attempted, validate="[amount, currency]", required=True, keep_exceptions=Declined
)
def charge_order(user_id: int, amount: int, currency: str = "eur", card: str = "tok_visa") -> int:
    """Charge once, however often the activity is attempted. Returns the charge's number."""
    charge = work.charge(
        user_id=user_id, attempt=Attempt.of_call(), amount=amount, currency=currency, card=card
    )
    return charge.pk
