"""Looks for an order of a key's calls: J.

Wing and C. Gong, "Testing and Verifying Concurrent Objects" (1993).

No configuration is visited twice: G. Lowe, "Testing for linearizability" (2017). Calls that are
alike are taken in the order of their responses, which loses nothing: in any order, two of them can
change places. So a crowd of fifty equal retries costs fifty steps instead of 2⁵⁰. What no order
explains is drawn as a timeline.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from .model import ASIDE, OPEN, Answer, Call, Key, step

#: Columns for the time, and the longest response that is shown.
WIDTH = 24
LONGEST = 60


def timeline(calls: Sequence[Call], culprit: Call) -> str:
    """Return a line for each call: when in milliseconds, by whom, and what the response says.

    No response: `···`.
    """
    begin = min(call.invoked for call in calls)
    end = max(call.invoked if call.responded is None else call.responded for call in calls)
    scale = (WIDTH - 1) / ((end - begin) or 1)
    longest = max(len(call.client) for call in calls)
    return "\n".join(
        f"  {(call.invoked - begin) * 1000:9.1f} ms  {_bar(call, begin, scale)}  "
        f"{call.client:{longest}}  {_said(call)}"
        f"{'  <-- impossible' if call is culprit else ''}"
        for call in sorted(calls, key=lambda call: call.invoked)
    )


def _bar(call: Call, begin: float, scale: float) -> str:
    first = round((call.invoked - begin) * scale)
    last = WIDTH - 1 if call.responded is None else round((call.responded - begin) * scale)
    bar = "█" if call.responded is not None else "·"
    return f"{' ' * first}{bar * (last - first + 1)}".ljust(WIDTH)


def _said(call: Call) -> str:
    shows = call.answer in (Answer.EXECUTED, Answer.LOST, Answer.REPLAYED, Answer.COUNTED)
    shown = f"{call.answer.value}: {call.response!r}" if shows else call.answer.value
    return shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}…"


# --------------------------------------------------------------------------------------- the search

#: Calls that leave a key as it is: an explanation can do without most of them.
IDLE = frozenset({Answer.BUSY, Answer.MISMATCH, Answer.REPLAYED, Answer.COUNTED, *OPEN})


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A key whose calls no order explains.

    `calls` are those up to the first impossible response, that of `culprit`, without those that
    make no difference. `states` are all that the key could be in then.
    """

    culprit: Call
    calls: tuple[Call, ...]
    states: tuple[Key, ...]

    def __str__(self) -> str:
        could = (
            " or ".join(sorted(map(str, self.states))) or "in none that the calls before it allow"
        )
        lines = timeline(self.calls, self.culprit)
        return (
            f"Key {self.culprit.key!r}: no order explains the marked response.\nThe key was "
            f"{could}.\n{lines}"
        )


def assert_linearizable(history: Iterable[Call]) -> None:
    """Raise `AssertionError` with a timeline of each key whose calls no order explains."""
    if found := violations(history):
        raise AssertionError("\n\n".join(map(str, found)))


def violations(history: Iterable[Call]) -> list[Violation]:
    """Return what is wrong with a history, at most one violation for each key.

    Keys do not touch each other.
    """
    calls: dict[str, list[Call]] = {}
    for call in sorted(history, key=lambda call: call.invoked):
        calls.setdefault(call.key, []).append(call)
    return [explain(each) for each in calls.values() if Search(each).fails]


class Search:
    """A search through all orders of one key's calls."""

    def __init__(self, calls: Sequence[Call], culprit: Call | None = None) -> None:
        self._calls = sorted(calls, key=lambda call: (call.deadline, call.invoked))
        self._required = sum(
            1 << number for number, call in enumerate(self._calls) if call.required
        )
        self._culprit = culprit
        self.refusing: set[Key] = set()  # in what states was the culprit impossible?
        self.fails = not self._succeeds()

    def _succeeds(self) -> bool:
        stack = [(0, Key())]
        visited = set(stack)
        while stack:
            done, key = stack.pop()
            if done & self._required == self._required:
                return True
            new = [each for each in self._next(done, key) if each not in visited]
            visited.update(new)
            stack += reversed(new)
        return False

    def _next(self, done: int, key: Key) -> Iterator[tuple[int, Key]]:
        """Yield each configuration that one more call leads to.

        `done` has a bit for each call that has happened.
        """
        left = [number for number in range(len(self._calls)) if not done >> number & 1]
        horizon = self._calls[left[0]].deadline
        current = [number for number in left if self._calls[number].invoked <= horizon]
        alike = set()
        for number in current:
            call = self._calls[number]
            kind = (call.answer, call.request, call.response)
            if kind in alike:
                continue
            alike.add(kind)
            others = (self._calls[other] for other in current if other != number)
            states = list(step(key, call, [other for other in others if other.answer not in ASIDE]))
            if call is self._culprit and not states:
                self.refusing.add(key)
            yield from ((done | 1 << number, state) for state in states)


def explain(calls: Sequence[Call]) -> Violation:
    """Return the violation of a key whose calls no order explains: the shortest prefix, and of that
    what matters.
    """
    ends = sorted((call for call in calls if call.required), key=lambda call: call.deadline)
    first = 0
    last = len(ends) - 1
    while first < last:  # whatever explains a history explains each prefix of it
        middle = (first + last) // 2
        if Search(until(calls, ends[middle].deadline)).fails:
            last = middle
        else:
            first = middle + 1
    culprit = ends[first]
    kept = until(calls, culprit.deadline)
    states = Search(kept, culprit).refusing
    for call in [call for call in kept if call.answer in IDLE and call is not culprit]:
        fewer = [each for each in kept if each is not call]
        search = Search(fewer, culprit)
        if search.fails and search.refusing == states:
            kept = fewer
    return Violation(culprit=culprit, calls=tuple(kept), states=tuple(states))


def until(calls: Iterable[Call], end: float) -> list[Call]:
    """Return what was known at a moment: of calls that had no response yet, the outcome is
    unknown.
    """
    return [
        known for call in calls if call.invoked <= end and (known := _known(call, end)) is not None
    ]


def _known(call: Call, end: float) -> Call | None:
    if call.deadline <= end or not call.required:
        return call
    if call.answer is Answer.COUNTED:
        return None
    answer = Answer.FORGOTTEN if call.answer is Answer.FORGOTTEN else Answer.UNKNOWN
    return replace(call, answer=answer, responded=None, response=None)
