"""What other projects expect of every implementation, and where this one differs on purpose."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from . import anyonce, idemkit
from .differences import DIFFERENCES
from .running import InCalls, OverHttp, Play
from .steps import Scenario


def plays() -> Iterator[tuple[str, Scenario, Play]]:
    """Yield each scenario, with the suite that it is of."""
    for scenario in anyonce.SCENARIOS:
        yield "anyonce", scenario, OverHttp(scenario)
    for scenario in idemkit.HTTP:
        yield "idemkit", scenario, OverHttp(scenario)
    for consumer, scenarios in ((True, idemkit.QUEUE), (False, idemkit.TOOLS)):
        for scenario in scenarios:
            yield "idemkit", scenario, InCalls(scenario, consumer=consumer)


PLAYS = list(plays())
MISSED = {(each.suite, each.scenario): list(each.missed) for each in DIFFERENCES}


@pytest.fixture(autouse=True)
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one in four threads of a small server wait: without more, a test's process has too few
    for one to wait.
    """
    running = threading.active_count
    monkeypatch.setattr("threading.active_count", lambda: max(running(), 8))


@pytest.mark.parametrize(
    ("suite", "name", "play"),
    [(suite, scenario.name, play) for suite, scenario, play in PLAYS],
    ids=[f"{suite}-{scenario.name}" for suite, scenario, _ in PLAYS],
)
def test_a_published_scenario(suite: str, name: str, play: Play) -> None:
    """It goes as its authors expect, but for the differences that are listed, each of which is
    there.
    """
    assert play.run() == MISSED.get((suite, name), [])


def test_they_are_all_there() -> None:
    """As many as the two projects publish, each under its own name; and each difference is of one
    of them.
    """
    names = [(suite, scenario.name) for suite, scenario, _ in PLAYS]
    assert [sum(suite == each for each, _ in names) for suite in ("anyonce", "idemkit")] == [20, 24]
    assert len(set(names)) == 44
    assert MISSED.keys() <= set(names)
