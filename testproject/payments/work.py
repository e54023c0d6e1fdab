"""The work that must happen once. The views only translate.

Each piece of work leaves its `Effect` first, then talks to the card network, then writes its own
row. So any failure on the way shows as an effect without a charge.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import F

from django_idempotency import current_operation

from .models import Charge, Effect, Refund
from .network import CARDS, answer

logger = logging.getLogger(__name__)


class RefundTooLarge(Exception):
    """The refund is larger than what is left of the charge."""

    def __str__(self) -> str:
        return "More than is left of the charge."


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What the work needs from `request.idempotency`, which is false without a key."""

    key: str = ""
    number: int = 0
    #: The idempotency key for the card network: the same at every attempt.
    card_key: str = ""

    @classmethod
    def of(cls, request: Any) -> Attempt:
        idempotency = getattr(request, "idempotency", None)  # absent where nothing guards
        return cls(key=idempotency.key, number=idempotency.attempt) if idempotency else cls()

    @classmethod
    def of_call(cls) -> Attempt:
        """See of(), for a guarded function instead of a view."""
        operation = current_operation()
        if operation is None:
            return cls()
        return cls(key=operation.key, number=operation.attempt, card_key=operation.derive("card"))

    def effect(self, label: str) -> Effect:
        return Effect(label=label, idempotency_key=self.key, attempt=self.number)


def charge(*, user_id: int, attempt: Attempt, amount: int, currency: str, card: str) -> Charge:
    """Charge a card. May raise Declined or NetworkDown."""
    logger.info("Charging: attempt %s, card key %s", attempt.number, attempt.card_key)
    attempt.effect("charge").save()
    time.sleep(CARDS[card].seconds)
    answer(CARDS[card], attempt=attempt.number)
    return Charge.objects.create(user_id=user_id, amount=amount, currency=currency)


async def acharge(
    *, user_id: int, attempt: Attempt, amount: int, currency: str, card: str
) -> Charge:
    """See charge()."""
    logger.info("Charging: attempt %s, card key %s", attempt.number, attempt.card_key)
    await attempt.effect("charge").asave()
    await asyncio.sleep(CARDS[card].seconds)
    answer(CARDS[card], attempt=attempt.number)
    return await Charge.objects.acreate(user_id=user_id, amount=amount, currency=currency)


def refund(*, charge: Charge, attempt: Attempt, amount: int) -> Refund:
    """Refund money, never more than was charged. May raise RefundTooLarge."""
    with transaction.atomic():
        left = Charge.objects.filter(pk=charge.pk, refunded__lte=F("amount") - amount)
        if not left.update(refunded=F("refunded") + amount):
            raise RefundTooLarge
        attempt.effect("refund").save()
        return Refund.objects.create(charge=charge, amount=amount)


def payout(attempt: Attempt) -> Effect:
    """Send money to a bank: an effect that none of our databases can undo."""
    effect = attempt.effect("payout")
    effect.save()
    return effect
