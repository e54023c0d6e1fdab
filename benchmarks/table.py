"""Measurements as lines of text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

NAME, RATIO, RANGE, BAR, COUNT = 56, 11, 23, 13, 12
WIDTH = NAME + RATIO + RANGE + BAR + COUNT + 11
#: Unit → how to format a value.
FORMATS = {
    "×": "{:.2f} ×",
    "rows/s": "{:,.0f} /s",
    "ms": "{:.1f} ms",
    "B": "{:.0f} B",
    "/s": "{:,.0f} /s",
    "": "{:.0f}",
    "µs": "{:.1f} µs",
    "trips": "{:.2f}",
    "MiB": "{:.2f} MiB",
}


class Point(NamedTuple):
    """A place on a line of a chart."""

    chart: str
    line: str
    x: float
    y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line: a value for each round, and the limit in the design."""

    name: str
    values: Sequence[float]
    unit: str = "×"
    bar: float | None = None
    #: Is the bar a minimum?
    at_least: bool = False
    #: The number of statements sent, or of round trips to a server that is not a database.
    statements: int | None = None
    most_statements: int | None = None
    flushes: int | None = None
    #: What a ratio cannot say.
    note: str = ""

    def __str__(self) -> str:
        low, high = (self._text(end(self.values)) for end in (min, max))
        columns = [
            f"{self.name:<{NAME}}{self._text(self.middle):>{RATIO}}{f'{low} – {high}':>{RANGE}}",
            f"{self._judged():>{BAR}}{self._counted():>{COUNT}}",
            f"{'' if self.flushes is None else self.flushes:>4}",
            f"  {self.note}",
        ]
        return "".join(columns).rstrip()

    @property
    def middle(self) -> float:
        return median(self.values)

    def _judged(self) -> str:
        if self.bar is None:
            return ""
        value = round(self.middle, 2)
        met = value >= self.bar if self.at_least else value <= self.bar
        return (
            f"{'≥' if self.at_least else '≤'} {self.bar:{',.0f' if self.bar > 10 else '.2f'}} "
            f"{mark(met)}"
        )

    def _counted(self) -> str:
        if self.statements is None or self.most_statements is None:
            return "" if self.statements is None else f"{self.statements}      "
        return (
            f"{self.statements} ≤ {self.most_statements} "
            f"{mark(self.statements <= self.most_statements)}"
        )

    def _text(self, value: float) -> str:
        return FORMATS[self.unit].format(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Rows with the same base of comparison."""

    title: str
    rows: Sequence[Row]
    #: What a chart shows of it.
    points: Sequence[Point] = ()

    def __str__(self) -> str:
        return "\n".join(["", self.title, *(f"  {row}" for row in self.rows)])


def mark(met: bool) -> str:
    return "✓" if met else "✗"


def heading(title: str, counted: str = "statements") -> str:
    """Begin a table.

    `counted` is what the last column but one counts; only databases have flushes.
    """
    columns = (
        f"{'':<{NAME + 2}}{'median':>{RATIO}}{'min – max':>{RANGE}}{'bar':>{BAR}}{counted:>{COUNT}}"
    )
    return f"{f'=== {title} ':=<{WIDTH}}\n{columns}{'flushes' if counted == 'statements' else '':>9}".rstrip()
