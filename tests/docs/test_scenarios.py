"""The page on proof counts the published scenarios and tests, and how many differ, as the tests
have them.
"""

from __future__ import annotations

from ..proofs.commerce.ucp import differences as ucp
from ..proofs.scenarios import anyonce, idemkit
from ..proofs.scenarios.differences import DIFFERENCES
from .pages import text

PAGE = "explanation/proof.md"
SAYS = {("anyonce", scenario.name): scenario.says for scenario in anyonce.SCENARIOS} | {
    ("idemkit", scenario.name): scenario.says
    for scenario in (*idemkit.HTTP, *idemkit.QUEUE, *idemkit.TOOLS)
}


def test_the_figures() -> None:
    """The page counts right."""
    page = " ".join(text(PAGE).split())
    assert f"{len(SAYS) - len(DIFFERENCES)} of the {len(SAYS)} go exactly" in page
    assert f"The other {len(DIFFERENCES)}," in page
    differing = sum(len(each.tests) for each in ucp.DIFFERENCES)
    assert f"{ucp.TESTS - differing} of {ucp.TESTS} pass" in page
