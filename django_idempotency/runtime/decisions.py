"""The decisions about a takeover, for requests and for calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..core.records import Record
from .handle import OperationHandle


@dataclass(frozen=True, slots=True)
class RunAgain:
    """Run the work again."""


@dataclass(frozen=True, slots=True)
class UseResult:
    """The earlier owner did the work, and this is its result."""

    result: Any


@dataclass(frozen=True, slots=True)
class HoldForReview:
    """The work does not run until a person has released it."""


Decision = RunAgain | UseResult | HoldForReview


class Question:
    """What the project is asked about a work that broke off. It returns what one of these
    returns.
    """

    __slots__ = ()

    def run(self) -> Decision:
        """Run the work. Each class says when that is safe."""
        return RunAgain()

    def found(self, result: Any) -> Decision:
        """Store and return this result, known from the provider; the work does not run."""
        return UseResult(result)

    def hold(self) -> Decision:
        """Keep the work from running until a person has decided."""
        return HoldForReview()


class Deciding(Question, OperationHandle):
    """The argument of what `on_takeover` and `OnTakeover` ask: an earlier owner crashed and may
    have done part of the work.

    Return `run()` if the work's external effects carry a derived key, or did not happen.
    """

    #: The record as the earlier owner left it, or as we have just taken it.
    record: Record

    def derive(self, label: str) -> str:
        """Return the key that the earlier owner may have passed on, however old it is: to look its
        effect up.
        """
        return self._derive(label)
