"""The work that these tests call, and how often it ran."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

from django_idempotency.functions import current_operation

MEMORY: dict[str, Any] = {"BACKEND": "django_idempotency.stores.memory.MemoryStore"}
ORM: dict[str, Any] = {
    "BACKEND": "django_idempotency.stores.orm.ORMStore",
    "OPTIONS": {"using": "default"},
}
LEASES: dict[str, Any] = {"STORES": {"default": MEMORY, "orm": ORM}, "GUARANTEE": "lease"}


@dataclass
class Runs:
    """Counts the runs of a function, and does in each what the test has set."""

    act: Callable[..., Any] = lambda *given, **named: None
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    attempts: list[int] = field(default_factory=list)

    def __call__(self, *given: Any, **named: Any) -> Any:
        self.calls.append(given)
        if (current := current_operation()) is not None:
            self.attempts.append(current.attempt)
        return self.act(*given, **named)

    @property
    def count(self) -> int:
        return len(self.calls)


class Clock:
    """A store's clock that only the test advances."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=timezone.utc)

    def __call__(self) -> datetime:
        return self.now

    def go(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


class CardDeclined(Exception):
    """A permanent refusal."""

    def __init__(self, reason: str, code: int) -> None:
        super().__init__(f"declined: {reason}")
        self.reason = reason
        self.code = code


class NetworkDown(Exception):
    """A temporary failure."""


def of(work: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function of an order, as a project would write it."""

    def charge(order: Any) -> Any:
        return work(order)

    return charge
