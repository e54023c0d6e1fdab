"""Run other projects' suites without us, with us installed, and with a fresh key on each unsafe request; then the shop.

    python -m tests.foreign [--build] [suite ...]

--build only makes their environment. The run fails for each difference that explained.py does not list, and for each
that it lists and that does not happen.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from . import environment, shop_run
from .explained import EXPLAINED
from .reports import complaints, differences, table, tally
from .running import Run, run_all
from .suites import MODES, SUITES, Suite

#: Seconds for all suites, on two cores; their environment is built before.
LIMIT = 480
HEADER = ("suite", "version", "alone", "installed", "keyed", "requests with a key", "of them guarded", "seconds")


def main(arguments: Sequence[str]) -> int:
    started = time.monotonic()
    only_build = "--build" in arguments
    arguments = [argument for argument in arguments if argument != "--build"]
    names = [*(suite.name for suite in SUITES), shop_run.NAME]
    if unknown := set(arguments) - set(names):
        print(f"Unknown: {', '.join(sorted(unknown))}. There are: {'; '.join(names)}.", file=sys.stderr)
        return 2
    suites = [suite for suite in SUITES if not arguments or suite.name in arguments]
    try:
        environment.build({suite.archive for suite in suites}, started + LIMIT)
    except environment.Unavailable as error:
        print(error, file=sys.stderr)
        return 1
    print(f"Environment and sources: {time.monotonic() - started:.0f} s.", flush=True)
    if only_build:
        return 0
    started = time.monotonic()
    runs, failures = run_all(suites, started + LIMIT)
    rows = []
    for suite in suites:
        found = {run.mode: run for run in runs if run.suite == suite}
        if set(found) == set(MODES):
            rows.append(row(suite, found))
            failures += judge(suite, found)
    print(table(HEADER, rows))
    if not arguments or shop_run.NAME in arguments:
        words, complaint = shop_run.run(started + LIMIT)
        failures += complaint
        print(words)
    for failure in failures:
        print(failure)
    print(f"Foreign suites: {time.monotonic() - started:.0f} s of {LIMIT}.")
    print(f"{sum(len(run.outcomes) for run in runs)} passed, {len(failures)} failed", flush=True)
    return 1 if failures else 0


def row(suite: Suite, found: dict[str, Run]) -> tuple[str, ...]:
    keyed = found["keyed"]
    return (
        suite.name,
        suite.archive.version,
        tally(found["without"].outcomes),
        said(found, "installed"),
        said(found, "keyed"),
        str(keyed.counts.get("keyed", 0)),
        str(keyed.guarded),
        " / ".join(f"{found[mode].seconds:.0f}" for mode in MODES),
    )


def said(found: dict[str, Run], mode: str) -> str:
    count = len(differences(found["without"].outcomes, found[mode].outcomes))
    return f"{count} differ" if count else "identical"


def judge(suite: Suite, found: dict[str, Run]) -> list[str]:
    """Return a sentence for each thing that is wrong."""
    failures = [
        f"{suite.name} ({mode}): {sentence}"
        for mode in MODES[1:]
        for sentence in complaints(
            differences(found["without"].outcomes, found[mode].outcomes),
            [each for each in EXPLAINED if (each.suite, each.mode) == (suite.name, mode)],
        )
    ]
    if (guarded := found["keyed"].guarded) < suite.guards:
        failures.append(f"{suite.name} (keyed): {guarded} requests were guarded, fewer than {suite.guards}.")
    if broken := [test for test, outcome in found["without"].outcomes.items() if outcome.state in ("failed", "error")]:
        failures.append(f"{suite.name} fails without us: {', '.join(broken[:5])}. Pin what it needs.")
    return failures


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
