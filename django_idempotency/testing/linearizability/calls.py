"""The facts of a history: one for each call that a client made."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum
from math import inf


class Answer(Enum):
    """What a response says about its call. The values are for people."""

    EXECUTED = "ran"  # and its response is remembered
    FAILED = "ran and failed"  # nothing is kept; the key is free again, for the same request only
    DROPPED = "ran, not remembered"  # the key is free again, for any request
    LOST = "ran, record lost"  # its response may or may not be remembered
    REPLAYED = "replay"  # the response of an earlier call
    BUSY = "busy"  # another call under the key is in progress
    MISMATCH = "mismatch"  # the key belongs to another request
    REFUSED = "refused"  # nothing ran, but the key may stay claimed
    UNKNOWN = "unknown"  # no response: it may have run, and may still run
    COUNTED = (
        "effects"  # no request: a look at how many effects remembered runs have left; the response is their number
    )
    FORGOTTEN = "forgotten"  # no request: the record has expired, or was deleted
    __hash__ = object.__hash__  # each member is one object, and Enum's own is Python


#: Calls that need not have a place in the order: they may happen late, or never.
OPEN = frozenset({Answer.LOST, Answer.REFUSED, Answer.UNKNOWN})
#: Calls that are no requests: no other call is ever busy because of them.
ASIDE = frozenset({Answer.COUNTED, Answer.FORGOTTEN})


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call under a key, as its client saw it.

    `invoked` and `responded` are seconds of one monotonic clock; `responded=None`: there was no response.
    `request` is what the fingerprint covers, `response` what a replay repeats, such as status and body.
    Raises `ValueError` for a response before its call, or an answer without a response.
    """

    key: str
    invoked: float
    answer: Answer
    responded: float | None = None
    client: str = ""
    request: Hashable = None
    response: Hashable = None

    def __post_init__(self) -> None:
        if self.responded is None and self.answer not in (Answer.UNKNOWN, Answer.FORGOTTEN):
            raise ValueError(f"A call without a response cannot have the answer {self.answer.name}.")
        if self.responded is not None and self.responded < self.invoked:
            raise ValueError("A call was responded to before it was invoked.")

    @property
    def required(self) -> bool:
        """Must it have happened?"""
        return self.answer not in OPEN and self.responded is not None

    @property
    def deadline(self) -> float:
        """The moment by which it has happened, in seconds of its clock."""
        return inf if self.responded is None or not self.required else self.responded
