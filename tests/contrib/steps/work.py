"""Functions of steps: they are found by their paths, as another process would."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

from django_idempotency.contrib.steps import InDoubt
from testproject.payments.models import Effect


@dataclass
class Provider:
    """A provider that deduplicates by key, and what it was asked to do."""

    calls: list[tuple[str, str]] = field(default_factory=list)
    effects: dict[str, str] = field(default_factory=dict)
    #: What goes wrong: before the effect, and after it.
    fails: dict[str, BaseException] = field(default_factory=dict)
    breaks: dict[str, BaseException] = field(default_factory=dict)
    undone: list[str] = field(default_factory=list)

    def do(self, what: str, key: str) -> str:
        self.calls.append((what, key))
        if what in self.fails:
            raise self.fails[what]
        done = self.effects.setdefault(key, f"{what}-{uuid.uuid4().hex[:8]}")
        if what in self.breaks:
            raise self.breaks.pop(what)
        return done

    def count(self, what: str) -> int:
        """Return how many effects of this kind there are."""
        return sum(effect.startswith(f"{what}-") for effect in self.effects.values())

    def asked(self, what: str) -> int:
        """Return how often it was called for one kind."""
        return sum(call == what for call, _ in self.calls)


PROVIDER = Provider()
#: What `found_out` answers: a function of what it is asked.
ANSWER: list[Any] = []


class Declined(Exception):
    """The card is declined: nothing was charged."""


class Crash(BaseException):
    """The process dies here."""


def reset() -> None:
    """Forget everything."""
    PROVIDER.__init__()  # type: ignore[misc]
    ANSWER.clear()


def make_order(card: str) -> int:
    """Write here."""
    return Effect.objects.create(label=f"order {card}").pk


def cancel_order(order: int) -> None:
    """Undo make_order() here."""
    Effect.objects.create(label=f"cancelled {order}")


def charge(order: int, *, idempotency_key: str) -> str:
    """Call elsewhere."""
    return PROVIDER.do("charge", idempotency_key)


def refund(charged: str, *, idempotency_key: str) -> None:
    """Undo charge() elsewhere."""
    PROVIDER.do("refund", idempotency_key)
    PROVIDER.undone.append(charged)


def refund_found(charged: Any, *, idempotency_key: str) -> None:
    """Undo charge(), of which perhaps nobody knows whether it had its effect."""
    if isinstance(charged, InDoubt):
        if charged.key not in PROVIDER.effects:
            return
        charged = PROVIDER.effects[charged.key]
    refund(charged, idempotency_key=idempotency_key)


def book(order: int, *, idempotency_key: str) -> str:
    """Call elsewhere."""
    return PROVIDER.do("book", idempotency_key)


def release(booked: str, *, idempotency_key: str) -> None:
    """Undo book() elsewhere."""
    PROVIDER.do("release", idempotency_key)
    PROVIDER.undone.append(booked)


async def acharge(order: int, *, idempotency_key: str) -> str:
    """Call elsewhere, as a coroutine."""
    return PROVIDER.do("charge", idempotency_key)


async def arefund(charged: str, *, idempotency_key: str) -> None:
    """Undo acharge()."""
    PROVIDER.do("refund", idempotency_key)
    PROVIDER.undone.append(charged)


def found_out(asked: Any) -> Any:
    """Answer as the test has set."""
    return ANSWER[0](asked)


def labels() -> list[str]:
    """Return what was written here, in order."""
    return list(Effect.objects.order_by("pk").values_list("label", flat=True))
