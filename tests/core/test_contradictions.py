"""The sentences about terms that contradict each other."""

from __future__ import annotations

from pathlib import Path

import django_idempotency
from django_idempotency.core.policy import async_contradiction


def test_what_is_async_cannot_be_atomic() -> None:
    """A check has no more to say here, since its hint says what to type."""
    said = 'shop.pay is async, and no transaction can cover it: it cannot be "atomic".'
    assert async_contradiction("shop.pay") == said
    assert async_contradiction("shop.pay", fix="Type it.") == f"{said} Type it."


def test_it_is_said_in_one_place() -> None:
    """Every entry point and the checks say the same sentence."""
    package = Path(django_idempotency.__file__).parent
    said = [path.name for path in package.rglob("*.py") if "is async, and no transaction" in path.read_text()]
    assert said == ["policy.py"]
