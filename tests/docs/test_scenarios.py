"""The page on proof lists each difference from a published scenario, as the tests have them."""

from __future__ import annotations

from ..scenarios import anyonce, idemkit
from ..scenarios.differences import DIFFERENCES
from .pages import checked, text

PAGE = "explanation/proof.md"
SAYS = {("anyonce", scenario.name): scenario.says for scenario in anyonce.SCENARIOS} | {
    ("idemkit", scenario.name): scenario.says for scenario in (*idemkit.HTTP, *idemkit.QUEUE, *idemkit.TOOLS)
}


def test_each_difference_has_its_row() -> None:
    """What it expects, and what happens here."""
    rows = [[each.suite, f"`{each.scenario}`", SAYS[each.suite, each.scenario], each.here] for each in DIFFERENCES]
    assert checked(PAGE, "scenarios") == rows


def test_the_figures() -> None:
    """The page counts right."""
    assert f"{len(SAYS) - len(DIFFERENCES)} of the {len(SAYS)} go exactly" in text(PAGE)
