"""What an undo gets in place of a result that nobody knows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class InDoubt:
    """The argument of an undo, where a person undoes a step that broke off: it may have had its effect, or not."""

    #: The step.
    name: str
    #: The key under which it may have called.
    key: str
