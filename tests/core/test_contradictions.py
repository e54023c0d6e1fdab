"""The sentences about terms that contradict each other."""

from __future__ import annotations

from django_idempotency.checks.routes import E030
from django_idempotency.core.policy import async_contradiction


def test_what_is_async_cannot_be_atomic() -> None:
    """The check says the same sentence, with a hint of its own."""
    said = 'shop.pay is async, and no transaction can cover it: it cannot be "atomic".'
    assert async_contradiction("shop.pay") == E030(view="shop.pay").msg == said
    assert async_contradiction("shop.pay", fix="Type it.") == f"{said} Type it."
