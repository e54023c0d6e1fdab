"""The charts of the docs, drawn from the results that `make bench BENCH_FLAGS="--scale --save"` and
its parts have kept.

    python -m benchmarks.charts

A chart takes its colours from the page that it is embedded in, or else from the reader's light or
dark mode.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from .environments import ROOT

RESULTS = Path(__file__).resolve().parent / "scale.json"
PICTURES = ROOT / "docs" / "pictures"

Points = Sequence[Sequence[float]]


class Axis(NamedTuple):
    """One direction: its values, and the pixels of the two ends."""

    label: str
    ticks: Sequence[float]
    start: float
    end: float
    logarithmic: bool = False

    def place(self, value: float) -> float:
        low, high, at = (
            math.log10(each) if self.logarithmic else each
            for each in (self.ticks[0], self.ticks[-1], value)
        )
        return round(self.start + (at - low) / (high - low) * (self.end - self.start), 1)


class Chart(NamedTuple):
    """What is on the axes of a chart, and where the vertical one begins, if not at its lowest
    value.
    """

    across: str
    upwards: str
    floor: float
    logarithmic: bool = False
    #: The least that the vertical axis shows, so that noise does not look like growth.
    span: float = 0.0


CHARTS = {
    "growth": Chart(
        "rows in the table", "× the same at 10,000 rows", 0, logarithmic=True, span=1.5
    ),
    "churn": Chart("hours", "× the bytes of the same rows, packed", 1, span=0.5),
    "memory": Chart("requests", "MiB in memory", 0, span=10),
}
WIDTH, HEIGHT = 640, 330
LEFT, RIGHT, TOP, BOTTOM = 52, 620, 44, 280
COLOURS = ("#5c6bc0", "#43a047", "#fb8c00", "#e53935")
STYLE = """
.chart { --ink: var(--md-typeset-color, #24292f); background: var(--md-default-bg-color, #fff) }
@media (prefers-color-scheme: dark) {
  .chart { --ink: var(--md-typeset-color, #d1d5db); background: var(--md-default-bg-color, #0d1117) }
}
.chart text { fill: var(--ink); font: 12px Helvetica, Arial, "Liberation Sans", sans-serif }
.chart .grid { stroke: var(--ink); stroke-opacity: .18 }
.chart polyline { fill: none; stroke-width: 2 }
"""


def draw(name: str, lines: dict[str, Points]) -> str:
    """Return a chart of lines, each through its points, as SVG."""
    chart = CHARTS[name]
    xs, ys = ([point[part] for points in lines.values() for point in points] for part in (0, 1))
    across = Axis(
        chart.across,
        powers(xs) if chart.logarithmic else steps(0, max(xs)),
        LEFT,
        RIGHT,
        chart.logarithmic,
    )
    upwards = Axis(
        chart.upwards, steps(chart.floor, max(*ys, chart.floor + chart.span)), BOTTOM, TOP
    )
    body = [
        *(horizontal(upwards.place(tick), f"{tick:g}") for tick in upwards.ticks),
        *(text(across.place(tick), BOTTOM + 18, f"{tick:,.0f}", "middle") for tick in across.ticks),
        text(RIGHT, BOTTOM + 38, across.label, "end"),
        text(8, 18, upwards.label),
    ]
    for number, (label, points) in enumerate(lines.items()):
        way = " ".join(f"{across.place(x)},{upwards.place(y)}" for x, y in points)
        colour, left = COLOURS[number], 250 + 190 * (number % 2)
        body += [
            f'<polyline points="{way}" stroke="{colour}"/>',
            (
                f'<rect x="{left}" y="{9 + 16 * (number // 2)}" width="12" height="4" '
                f'fill="{colour}"/>'
            ),
            text(left + 18, 16 + 16 * (number // 2), label),
        ]
    head = (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        'xmlns="http://www.w3.org/2000/svg">'
    )
    return "\n".join([head, f"<style>{STYLE}</style>", *body, "</svg>", ""])


def horizontal(y: float, label: str) -> str:
    return f'<line class="grid" x1="{LEFT}" x2="{RIGHT}" y1="{y}" y2="{y}"/>' + text(
        LEFT - 8, y + 4, label, "end"
    )


def text(x: float, y: float, content: str, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(content)}</text>'


def steps(low: float, high: float) -> list[float]:
    """Return four to ten round values that reach from the lowest to the highest."""
    rough = (high - low) / 5
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough)
    return [
        round(low + step * number, 9)
        for number in range(math.ceil(round((high - low) / step, 6)) + 1)
    ]


def powers(values: Iterable[float]) -> list[float]:
    """Return the powers of ten around values."""
    logs = [math.log10(value) for value in values]
    return [10.0**power for power in range(math.floor(min(logs)), math.ceil(max(logs)) + 1)]


def main() -> None:
    for name, lines in json.loads(RESULTS.read_text(encoding="utf-8"))["charts"].items():
        (PICTURES / f"{name}.svg").write_text(draw(name, lines), encoding="utf-8")
        print(f"Drawn: docs/pictures/{name}.svg")


if __name__ == "__main__":
    main()
