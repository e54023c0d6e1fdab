"""The calls that clients made, and what one key may do: free → completed with one response →
forgotten.

A key is running while any call that may run is in flight. A call has one decisive moment between
its invocation and its response; `step` says what follows if that moment is now. Who takes over from
whom is not modelled: it is right exactly if the one that lost its record does not complete it.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator
from dataclasses import dataclass, replace
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
    #: No request: a look at how many effects remembered runs have left; the response is their
    #: number.
    COUNTED = "effects"
    FORGOTTEN = "forgotten"  # no request: the record has expired, or was deleted
    __hash__ = object.__hash__  # each member is one object, and Enum's own is Python


#: Calls that need not have a place in the order: they may happen late, or never.
OPEN = frozenset({Answer.LOST, Answer.REFUSED, Answer.UNKNOWN})
#: Calls that are no requests: no other call is ever busy because of them.
ASIDE = frozenset({Answer.COUNTED, Answer.FORGOTTEN})


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call under a key, as its client saw it.

    `invoked` and `responded` are seconds of one monotonic clock; `responded=None`: there was no
    response. `request` is what the fingerprint covers, `response` what a replay repeats, such as
    status and body. Raises `ValueError` for a response before its call, or an answer without a
    response.
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
            raise ValueError(
                f"A call without a response cannot have the answer {self.answer.name}."
            )
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


# -------------------------------------------------------------------------------------------- a key


class Anything:
    """The response of a call whose response was lost: equal to whatever a replay shows first."""

    def __repr__(self) -> str:
        return "a response that nobody received"


ANYTHING = Anything()


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key between two moments. `request`: the one that it belongs to; `effects`: how many are
    committed.
    """

    completed: bool = False
    request: Hashable = None
    response: Hashable = None
    effects: int = 0

    def __str__(self) -> str:
        counted = f"with {self.effects} effect{'' if self.effects == 1 else 's'}"
        return (
            f"completed {counted}: {self.response!r}"
            if self.completed
            else f"free or running, {counted}"
        )


def step(key: Key, call: Call, rivals: Collection[Call]) -> Iterator[Key]:
    """Yield the states that may follow if a call happens now; none: it cannot.

    `rivals` are the others in flight.
    """
    belongs = key.request in (None, call.request)
    runs = belongs and not key.completed
    match call.answer:
        case Answer.EXECUTED | Answer.LOST if runs:
            yield _completed(key, call, call.response)
        case Answer.FAILED if runs:
            yield replace(key, request=call.request)
        case Answer.DROPPED if runs:
            yield replace(key, request=None)
        case Answer.UNKNOWN if runs:
            yield _completed(key, call, ANYTHING)
            yield replace(key, request=call.request)
            yield replace(key, request=None)
        case Answer.REPLAYED if (
            key.completed and belongs and key.response in (ANYTHING, call.response)
        ):
            yield replace(key, response=call.response)
        case Answer.BUSY if rivals and not key.completed:
            yield key
        case Answer.MISMATCH if not belongs or _refusing(key, call, rivals):
            yield key
        case Answer.COUNTED if call.response == key.effects:
            yield key
        case Answer.FORGOTTEN:
            yield Key(effects=key.effects)


def _completed(key: Key, call: Call, response: Hashable) -> Key:
    return Key(completed=True, request=call.request, response=response, effects=key.effects + 1)


def _refusing(key: Key, call: Call, rivals: Collection[Call]) -> bool:
    """Is another request under way?"""
    return not key.completed and any(rival.request != call.request for rival in rivals)
