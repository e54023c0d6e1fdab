"""How a record looks where it is kept, if that is not what a request sees: sealed, hashed or erased.

A sealed response keeps its status; its headers and its body are bytes that only a key opens. One that nothing opens is
read as done and not stored: its work does not run again.
"""

from __future__ import annotations

from typing import Final

from .records import CANCELLATION, MISSING, Outcome, OutcomeKind, kind_of

#: The one header of a sealed response; its value holds the others. No header has a colon in its name.
SEALED: Final = ":sealed"


def is_sealed(outcome: Outcome | None) -> bool:
    """Is it a response that has not been opened?"""
    return outcome is not None and len(outcome.headers) == 1 and outcome.headers[0][0] == SEALED


def readable(outcome: Outcome) -> Outcome:
    """Return what can be read of a response: of one that has not been opened, only its status."""
    return Outcome(status=outcome.status, body=MISSING) if is_sealed(outcome) else outcome


def says_nothing(outcome: Outcome) -> bool:
    """Is it one of our own marks, and not a response? Those are not sealed: they say the same of every key."""
    return outcome == CANCELLATION or (kind_of(outcome) is OutcomeKind.HELD and outcome.body is MISSING)
