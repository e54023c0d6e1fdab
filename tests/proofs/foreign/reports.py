"""What pytest has reported, and how two runs of one suite differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

#: From the best to the worst: a test that is reported twice (its subtests, its teardown) ended as
#: its worst report.
STATES = ("passed", "skipped", "failed", "error", "missing")
_TAGS = {"skipped": "skipped", "failure": "failed", "error": "error"}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    state: str
    message: str = ""


MISSING = Outcome(state="missing")
Outcomes = Mapping[str, Outcome]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A test whose outcome differs from that in the run without us."""

    test: str
    without: Outcome
    ours: Outcome

    def __str__(self) -> str:
        first_line = self.ours.message.strip().partition("\n")[0]
        return f"{self.test}: {self.without.state} → {self.ours.state}. {first_line}"


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Why tests of one suite differ in one mode, and what each of them must then print."""

    suite: str
    mode: str
    shows: str
    reason: str
    tests: tuple[str, ...]

    def explains(self, difference: Difference) -> bool:
        return difference.test in self.tests and self.shows in difference.ours.message


def read(report: Path) -> Outcomes:
    """Return how each test of a junit report ended, by its id."""
    outcomes: dict[str, Outcome] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        test, outcome = f"{case.get('classname')}::{case.get('name')}", _outcome(case)
        outcomes[test] = max(
            outcomes.get(test, outcome), outcome, key=lambda found: STATES.index(found.state)
        )
    return outcomes


def _outcome(case: ElementTree.Element) -> Outcome:
    for child in case:
        if child.tag in _TAGS:
            return Outcome(
                state=_TAGS[child.tag], message=f"{child.get('message') or ''}\n{child.text or ''}"
            )
    return Outcome(state="passed")


def differences(without: Outcomes, ours: Outcomes) -> list[Difference]:
    """Return each test whose outcome differs, including one that ran in only one of the two."""
    return [
        Difference(test=test, without=without.get(test, MISSING), ours=ours.get(test, MISSING))
        for test in sorted({*without, *ours})
        if without.get(test, MISSING).state != ours.get(test, MISSING).state
    ]


def complaints(found: Sequence[Difference], explanations: Iterable[Explanation]) -> list[str]:
    """Return a sentence for each difference without an explanation, and for each explanation
    without a difference.
    """
    explanations = list(explanations)
    unexplained = [
        f"unexplained: {each}"
        for each in found
        if not any(one.explains(each) for one in explanations)
    ]
    idle = [
        f"explained, but no longer different: {test}"
        for one in explanations
        for test in one.tests
        if not any(each.test == test and one.explains(each) for each in found)
    ]
    return [*unexplained, *idle]


def tally(outcomes: Outcomes) -> str:
    """Return "1655 passed, 9 skipped"."""
    states = Counter(outcome.state for outcome in outcomes.values())
    return ", ".join(f"{states[state]} {state}" for state in STATES if states[state])


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table, as in the docs."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
