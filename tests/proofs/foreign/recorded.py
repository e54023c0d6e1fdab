"""How each suite ends without us: `python -m tests.proofs.foreign --record` writes it, other runs
compare with it.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from .environment import REQUIREMENTS
from .reports import Outcome, Outcomes
from .suites import HERE, Suite

FILE = HERE / "recorded.json"
AGAIN = "Record it again: make foreign FOREIGN=--record"


class Stale(Exception):
    """What has been recorded is of another suite, environment or set of tests than these."""


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A run without us. `facts` and `tests` are digests: of what its outcomes depend on, and of the
    names of its tests.
    """

    facts: str
    tests: str
    passed: int
    #: The tests that did not pass, and how they ended.
    others: Mapping[str, str]

    @property
    def total(self) -> int:
        return self.passed + len(self.others)

    def outcomes(self, ran: Iterable[str]) -> Outcomes:
        """Return how each of the tests that now ran with us has ended without us.

        Raises `Stale` if they are others.
        """
        names = set(ran)
        if digest(names) != self.tests:
            raise Stale(
                f"{self.total} tests were recorded, and {len(names)} ran that are not all "
                f"the same. {AGAIN}"
            )
        return {name: Outcome(state=self.others.get(name, "passed")) for name in names}


def recorded_of(suite: Suite, outcomes: Outcomes) -> Recorded:
    others = {
        name: outcome.state
        for name, outcome in sorted(outcomes.items())
        if outcome.state != "passed"
    }
    return Recorded(
        facts=facts(suite),
        tests=digest(outcomes),
        passed=len(outcomes) - len(others),
        others=others,
    )


def load(suites: Iterable[Suite], file: Path = FILE) -> dict[str, Recorded]:
    """Return what was recorded of each suite, by its name.

    Raises `Stale` unless that was under today's facts.
    """
    known = {
        name: Recorded(**each)
        for name, each in json.loads(file.read_text(encoding="utf-8")).items()
    }
    for suite in suites:
        if suite.name not in known or known[suite.name].facts != facts(suite):
            raise Stale(
                f"{suite.name}: its pins, options, settings or Python are not those of the "
                f"record. {AGAIN}"
            )
    return known


def save(recorded: Mapping[str, Recorded], file: Path = FILE) -> None:
    """Write the record of the suites named, and leave that of the others."""
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    known |= {name: asdict(each) for name, each in recorded.items()}
    file.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def facts(suite: Suite) -> str:
    """Return a digest of all that the outcomes without us depend on."""
    support = [HERE / "guard", *([suite.archive.support[0]] if suite.archive.support else [])]
    sources = [REQUIREMENTS, *(path for folder in support for path in sorted(folder.glob("*.py")))]
    return digest(
        [
            f"Python {sys.version_info.major}.{sys.version_info.minor}",
            f"{suite.archive.name} {suite.archive.sha256}",
            *(f"option {option}" for option in suite.options),
            *(f"{name}={value}" for name, value in suite.environment.items()),
            *(f"{source.name} {said(source)}" for source in sources),
        ]
    )


def said(source: Path) -> str:
    """Return what a source says, whatever its layout: that of Python as its syntax tree."""
    text = source.read_text(encoding="utf-8")
    return ast.dump(ast.parse(text)) if source.suffix == ".py" else text


def digest(lines: Iterable[str]) -> str:
    return sha256("\n".join(sorted(lines)).encode()).hexdigest()
