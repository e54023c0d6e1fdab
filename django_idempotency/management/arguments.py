"""Numeric arguments of our commands."""

from __future__ import annotations

from argparse import ArgumentTypeError
from typing import Any

#: The largest LIMIT that every database accepts.
MOST_ROWS = 2**63 - 1
#: A year, in seconds.
MOST_SECONDS = 365 * 86_400


def positive(text: str) -> int:
    return int(_number(int, text, least=1, most=MOST_ROWS, words="a whole number of at least 1"))


def not_negative(text: str) -> float:
    return _number(float, text, least=0, most=MOST_SECONDS, words="a number of seconds, 0 or more")


def _number(kind: Any, text: str, *, least: int, most: int, words: str) -> float:
    try:
        value = kind(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        limit = f", and at most {most}" if value > most else ""
        raise ArgumentTypeError(f"{text!r} is not {words}{limit}.")
    return float(value) if kind is float else int(value)
