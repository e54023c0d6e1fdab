"""Scalars as text that ends in ";", each type behind a tag of its own: rule 1 of `core.canonical`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import UUID

#: The most steps of the path to a refused value that are shown.
_SHOWN = 8
SELECT = "Select what identifies the call with key=…"


class UnhashableValue(TypeError):
    """A value, or a part of it, cannot be hashed."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        #: The path to the part: names and indexes, outermost first.
        self.path: list[object] = []

    def __str__(self) -> str:
        where = "".join(map(_step, self.path[:_SHOWN])).removeprefix(".") + "…" * (len(self.path) > _SHOWN)
        return f"{where}: {self.reason}" if where else self.reason


class TooDeep(UnhashableValue):
    """A value is nested too deep, or contains itself."""


def _step(name: object) -> str:
    if isinstance(name, str):
        return f".{name}" if name.isidentifier() else f"[{name[:40]!r}]"
    return f"[{name}]" if isinstance(name, int) else f"[a key of type {type(name).__name__}]"


def _decimal(value: Decimal) -> str:
    sign, digits, exponent = value.as_tuple()
    if isinstance(exponent, str):
        return "d-inf;" if exponent == "F" and sign else "dinf;" if exponent == "F" else "dnan;"
    text = "".join(map(str, digits)).lstrip("0")
    significant = text.rstrip("0")
    if not significant:
        return "d0;"
    return f"d{'-' * sign}{significant}e{exponent + len(text) - len(significant)};"


def _date(value: dt.date) -> str:
    return f"D{value.toordinal():x};"


def _time(value: dt.time) -> str:
    offset = value.utcoffset()
    if offset is None:
        if value.tzinfo is not None:
            raise UnhashableValue(f"a time in a zone whose offset depends on the date cannot be hashed. {SELECT}")
        return f"T{_of_day(value):x};"
    return f"U{_of_day(value):x}/{_microseconds(offset):x};"


def _datetime(value: dt.datetime) -> str:
    wall = value.toordinal() * 86_400_000_000 + _of_day(value)
    offset = value.utcoffset()
    return f"W{wall:x};" if offset is None else f"I{wall - _microseconds(offset):x};"


def _of_day(value: dt.time | dt.datetime) -> int:
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond


def _microseconds(value: dt.timedelta) -> int:
    return (value.days * 86400 + value.seconds) * 1_000_000 + value.microseconds


#: Type → how its values are written: scalars that end in ";".
SCALARS: dict[type, Callable[[Any], str]] = {
    type(None): lambda _: "n;",
    bool: lambda value: "y;" if value else "z;",
    int: lambda value: f"i{int.__index__(value):x};",  # in decimal, Python refuses 4301 digits
    float: lambda value: f"f{float.__add__(value, 0.0)!r};",  # -0.0 + 0.0 is 0.0
    Decimal: _decimal,
    UUID: lambda value: f"u{value.hex};",
    dt.datetime: _datetime,
    dt.date: _date,
    dt.time: _time,
    dt.timedelta: lambda value: f"P{_microseconds(value):x};",
}
