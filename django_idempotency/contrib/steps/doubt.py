"""What the project is given about a step that broke off: its `ask`, and its undo."""

from __future__ import annotations

from dataclasses import dataclass

from ...runtime.decisions import Question


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
