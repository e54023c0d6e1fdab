"""What `mode="observe"` has reported."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

OBSERVE = {"MODE": "django_idempotency.contrib.observe.OBSERVE"}


@dataclass
class Observed:
    """Receives the signals."""

    would: list[str] = field(default_factory=list)
    errors: list[Any] = field(default_factory=list)
    unguarded: list[str] = field(default_factory=list)

    def note(self, reason: str, error: Any, **_: Any) -> None:
        self.would.append(reason)
        self.errors.append(error)

    def note_unguarded(self, reason: str, **_: Any) -> None:
        self.unguarded.append(reason)
