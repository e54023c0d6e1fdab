"""What the project is given about a step that broke off: its `ask`, and its undo."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..takeovers.decisions import HoldForReview, RunAgain, UseResult


@dataclass(frozen=True, slots=True)
class Asked:
    """The argument of `ask`: a step was found started and not ended. Return `run()`, `found(result)` or `hold()`."""

    name: str
    #: The key under which it may have called.
    key: str

    def run(self) -> RunAgain:
        """It had no effect: run it. Where the operation gives up, there is nothing to undo."""
        return RunAgain()

    def found(self, result: Any) -> UseResult:
        """It was carried out, and this is its result."""
        return UseResult(result)

    def hold(self) -> HoldForReview:
        """Nobody knows: a person must decide."""
        return HoldForReview()


@dataclass(frozen=True, slots=True, kw_only=True)
class InDoubt:
    """The argument of an undo, where a person undoes a step that broke off: it may have had its effect, or not."""

    #: The step.
    name: str
    #: The key under which it may have called.
    key: str
