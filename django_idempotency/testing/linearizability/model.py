"""What one key may do: free → completed with one response → forgotten. It is running while any call that may run is in flight.

A call has one decisive moment between its invocation and its response. `step` says what follows if that moment is now.
Who takes over from whom is not modelled: it is right exactly if the one that lost its record does not complete it.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator
from dataclasses import dataclass, replace

from .calls import Answer, Call


class Anything:
    """The response of a call whose response was lost: equal to whatever a replay shows first."""

    def __repr__(self) -> str:
        return "a response that nobody received"


ANYTHING = Anything()


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key between two moments. `request`: the one that it belongs to; `effects`: how many are committed."""

    completed: bool = False
    request: Hashable = None
    response: Hashable = None
    effects: int = 0

    def __str__(self) -> str:
        counted = f"with {self.effects} effect{'' if self.effects == 1 else 's'}"
        return f"completed {counted}: {self.response!r}" if self.completed else f"free or running, {counted}"


def step(key: Key, call: Call, rivals: Collection[Call]) -> Iterator[Key]:
    """Yield the states that may follow if a call happens now; none: it cannot. `rivals` are the others in flight."""
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
        case Answer.REPLAYED if key.completed and belongs and key.response in (ANYTHING, call.response):
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
