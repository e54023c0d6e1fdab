"""Options that few policies need. Each is an object, for `extensions=[…]` of a policy.

`UndoOn` is in `contrib.steps`, and what limits the clients in `contrib.limits`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from inspect import iscoroutinefunction
from types import MappingProxyType
from typing import Any, ClassVar

from ..core.dialects import takes
from ..core.policy import DURATION, is_duration, is_flag, seconds
from .extensions import Extension


class Option(Extension):
    """Says one thing more about the calls of a policy. `None` takes back what the settings say.

    Raises `ValueError` for a value that it does not accept.
    """

    #: Its name in the compiled policy.
    decides: str
    #: In words what to type.
    expected: ClassVar[str] = DURATION

    def __init__(self, value: object) -> None:
        self.value = value
        if value is None:
            return
        if not self.accepts(value):
            raise ValueError(f"{self!r} is {self.expected}, or None.")
        if isinstance(value, timedelta):
            value = seconds(value)
        self.terms = {self.decides: value}

    def accepts(self, value: object) -> bool:
        """Is it a value that it may have?"""
        return is_duration(value)

    def __repr__(self) -> str:
        named = getattr(self.value, "__qualname__", self.value)
        return f"{type(self).__name__}({named})"


class Tombstones(Option):
    """Remembers a key for so long after its `ttl` has ended: a request with it, of any body, gets
    412 `key-expired`, and runs nothing.
    """

    decides = "seen_for"


class LongestRun(Option):
    """Bounds how long work may run: after that nobody renews its lease, which ends at most one
    `lease` later, so that another may take over.
    """

    decides = "longest_run"
    needs_lease = True

    def contradiction(self, says: Callable[[str], Any]) -> str | None:
        """Return why a lease that is never renewed cannot have one."""
        lease = says("lease")
        if not self.terms or not is_duration(lease) or seconds(lease) < self.terms[self.decides]:
            return None
        return f"Policy(lease={lease}, extensions=[{self!r}]): make LongestRun longer than lease."


class OnReplay(Option):
    """Makes what a replay of a request sends: `render(request, response)` returns the stored
    response, or one with the current state. A function has its argument `on_replay`.
    """

    decides = "on_replay"
    takes_functions = False
    expected = "a sync function of request and response"

    def accepts(self, value: object) -> bool:
        """Can it be called as it will be?"""
        return takes(value, 2) and not iscoroutinefunction(value)


class OnTakeover(Option):
    """Asks before a request runs again whose owner was abandoned: `ask(takeover)` returns
    `takeover.run()`, `.found(response)` or `.hold()`. It may be a coroutine function. A function
    has its argument `on_takeover`.
    """

    decides = "on_takeover"
    needs_lease = True
    takes_functions = False
    expected = "a function of a takeover"

    def accepts(self, value: object) -> bool:
        """Can it be called as it will be?"""
        return takes(value, 1)


class Switch(Extension):
    """Says yes to one thing more. `False` takes back what the settings say.

    Raises `ValueError` for any other value.
    """

    sets: ClassVar[Mapping[str, object]]

    def __init__(self, on: bool = True) -> None:
        if not is_flag(on):
            raise ValueError(f"{type(self).__name__}({on!r}): type True or False.")
        if on:
            self.terms = self.sets

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'' if self.terms else False})"


class StatusOnly(Switch):
    """Stores nothing of a response but its status, and the headers that `headers` names: for what
    mints secrets.
    """

    decides = "store_body"
    sets = MappingProxyType({"store_body": False, "buffer_stream": False, "max_body": 0})


class BufferedStreams(Switch):
    """Reads a `StreamingHttpResponse` into memory, and stores it."""

    decides = "buffer_stream"
    sets = MappingProxyType({"buffer_stream": True})
