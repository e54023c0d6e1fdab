"""Draws the calls of a key, one below the other."""

from __future__ import annotations

from collections.abc import Sequence

from .calls import Answer, Call

#: Columns for the time, and the longest response that is shown.
WIDTH, LONGEST = 24, 60


def timeline(calls: Sequence[Call], culprit: Call) -> str:
    """Return a line for each call: when in milliseconds, by whom, and what the response says. No response: `···`."""
    begin = min(call.invoked for call in calls)
    end = max(call.invoked if call.responded is None else call.responded for call in calls)
    scale = (WIDTH - 1) / ((end - begin) or 1)
    longest = max(len(call.client) for call in calls)
    return "\n".join(
        f"  {(call.invoked - begin) * 1000:9.1f} ms  {_bar(call, begin, scale)}  {call.client:{longest}}  {_said(call)}"
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
