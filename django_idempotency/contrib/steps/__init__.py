"""Steps of a view or function, each done once and remembered, and undone once.

An app of its own. The project is given an `Asked` or an `InDoubt` about a step that broke off.
`durable` is for work that an engine suspends, and restarts from the beginning hours later.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...runtime.decisions import Question
from .undo_on import UndoOn

__all__ = ["InDoubt", "UndoOn"]


@dataclass(frozen=True, slots=True)
class Asked(Question):
    """The argument of `ask`: a step was found started and not ended.

    Return `run()` if it had no effect (where the operation gives up, there is nothing to undo),
    `found(result)` if it was carried out, or `hold()` if nobody knows.
    """

    name: str
    #: The key under which it may have called.
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InDoubt:
    """The argument of an undo, where a person undoes a step that broke off: it may have had its
    effect, or not.
    """

    #: The step.
    name: str
    #: The key under which it may have called.
    key: str
