"""The charts of the docs show the results that are kept."""

from __future__ import annotations

import json
from xml.etree import ElementTree

from benchmarks.charts import CHARTS, PICTURES, RESULTS, draw, steps

KEPT = json.loads(RESULTS.read_text(encoding="utf-8"))


def test_each_chart_is_drawn_from_the_kept_results() -> None:
    """No chart is older than its results, and each is well-formed."""
    assert sorted(KEPT["charts"]) == sorted(CHARTS)
    for name, lines in KEPT["charts"].items():
        drawn = (PICTURES / f"{name}.svg").read_text(encoding="utf-8")
        assert drawn == draw(name, lines), "Draw it again: python -m benchmarks.charts"
        assert len(
            ElementTree.fromstring(drawn).findall("{http://www.w3.org/2000/svg}polyline")
        ) == len(lines)


def test_an_axis_has_round_ticks() -> None:
    """An axis reaches from the lowest value to beyond the highest, in a few round steps."""
    assert steps(0, 1.5) == [0, 0.5, 1.0, 1.5]
    assert steps(1, 1.07) == [1, 1.02, 1.04, 1.06, 1.08]
    assert steps(0, 92) == [0, 20, 40, 60, 80, 100]
