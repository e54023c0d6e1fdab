"""Run other projects' suites with us installed, and with a fresh key on each unsafe request; then
the shop.

    python -m tests.proofs.foreign [--build | --record | --keyed] [suite ...]

Each test must end as it did without us, which recorded.json says: --record runs the suites without
us and writes it. --build only makes their environment and looks at the record. --keyed only runs
them with keys, as CI does: safe requests have none there either. The run fails for each difference
that explained.py does not list, for each that it lists and that does not happen, and if the record
is of other versions, options or tests.

FOREIGN_SECONDS gives them longer than two idle cores need. Their environment is built before, in as
much time.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence

from ... import matrix
from ..environments import Unavailable
from . import environment, shop_run
from .explained import EXPLAINED
from .recorded import Recorded, Stale, load, recorded_of, save
from .reports import Difference, complaints, differences, table, tally
from .running import Run, run_all
from .suites import OURS, SUITES, Suite

#: Seconds for all suites.
LIMIT = float(os.environ.get("FOREIGN_SECONDS", "480"))
HEADER = (
    "suite",
    "version",
    "alone",
    "installed",
    "keyed",
    "requests with a key",
    "of them guarded",
    "seconds",
)


def main(arguments: Sequence[str]) -> int:
    started = time.monotonic()
    flags = {argument for argument in arguments if argument.startswith("--")}
    chosen = [argument for argument in arguments if argument not in flags]
    names = [*(suite.name for suite in SUITES), shop_run.NAME]
    if unknown := (set(chosen) - set(names)) | (flags - {"--build", "--record", "--keyed"}):
        print(
            f"Unknown: {', '.join(sorted(unknown))}. There are: {'; '.join(names)}.",
            file=sys.stderr,
        )
        return 2
    suites = [suite for suite in SUITES if not chosen or suite.name in chosen]
    try:
        environment.build({suite.archive for suite in suites}, started + LIMIT)
    except Unavailable as error:
        print(error, file=sys.stderr)
        return 1
    print(f"Environment and sources: {time.monotonic() - started:.0f} s.", flush=True)
    try:  # The gate asks with --build at its start, and not after half an hour.
        recorded = {} if "--record" in flags else load(suites)
    except Stale as stale:
        print(stale, file=sys.stderr)
        return 1
    if "--build" in flags:
        return 0
    started = time.monotonic()
    if "--record" in flags:
        failures = record(suites)
    else:
        modes = ("keyed",) if "--keyed" in flags else OURS
        failures = compare(suites, modes, recorded, shop=not chosen or shop_run.NAME in chosen)
    for failure in failures:
        print(failure)
    print(f"Foreign suites: {time.monotonic() - started:.0f} s of {LIMIT:.0f}.")
    print(f"{len(failures)} failed", flush=True)
    return 1 if failures else 0


def record(suites: Sequence[Suite]) -> list[str]:
    """Run the suites without us and record how they end; return what is wrong.

    A suite that fails is not recorded.
    """
    runs, failures = run_all(suites, ["without"], time.monotonic() + LIMIT)
    for run in runs:
        if broken := [
            test for test, outcome in run.outcomes.items() if outcome.state in ("failed", "error")
        ]:
            failures.append(
                f"{run.suite.name} fails without us: {', '.join(broken[:5])}. Pin what it needs."
            )
        else:
            save({run.suite.name: recorded_of(run.suite, run.outcomes)})
            print(f"{run.suite.name}: {tally(run.outcomes)}, recorded.")
    return failures


def compare(
    suites: Sequence[Suite], modes: Sequence[str], recorded: Mapping[str, Recorded], *, shop: bool
) -> list[str]:
    """Run the suites with us, and the shop; print a table of them, and return what is wrong."""
    deadline = time.monotonic() + LIMIT
    runs, failures = run_all(suites, modes, deadline)
    rows = []
    for suite in suites:
        found = {run.mode: run for run in runs if run.suite == suite}
        if set(found) != set(modes):
            continue
        try:
            without = {
                mode: recorded[suite.name].outcomes(run.outcomes) for mode, run in found.items()
            }
        except Stale as stale:
            failures.append(f"{suite.name}: {stale}")
            continue
        found_differences = {
            mode: differences(without[mode], run.outcomes) for mode, run in found.items()
        }
        rows.append(row(suite, tally(without["keyed"]), found, found_differences))
        wrong = judge(suite, found, found_differences)
        failures += wrong
        if not wrong:
            keep(suite, found["keyed"])
    print(table(HEADER, rows))
    if shop:
        words, complaint = shop_run.run(deadline)
        failures += complaint
        print(words)
    return failures


def keep(suite: Suite, keyed: Run) -> None:
    """Note for the matrix of versions that a suite's tests end with us as without."""
    states = [outcome.state for outcome in keyed.outcomes.values()]
    on = matrix.versions(command=[str(environment.PYTHON)])
    matrix.note(
        by="make foreign",
        name=suite.name.replace(
            suite.archive.name, f"{suite.archive.name} {suite.archive.version}"
        ),
        passed=states.count("passed"),
        skipped=states.count("skipped"),
        on=on,
    )


def row(
    suite: Suite, alone: str, found: dict[str, Run], differ: dict[str, list[Difference]]
) -> tuple[str, ...]:
    keyed = found["keyed"]
    return (
        suite.name,
        suite.archive.version,
        alone,
        *(ended(differ[mode]) if mode in differ else "not run" for mode in OURS),
        str(keyed.counts.get("keyed", 0)),
        str(keyed.guarded),
        " / ".join(f"{run.seconds:.0f}" for run in found.values()),
    )


def ended(differ: Sequence[Difference]) -> str:
    return f"{len(differ)} differ" if differ else "identical"


def judge(suite: Suite, found: dict[str, Run], differ: dict[str, list[Difference]]) -> list[str]:
    """Return a sentence for each thing that is wrong."""
    failures = [
        f"{suite.name} ({mode}): {sentence}"
        for mode in differ
        for sentence in complaints(
            differ[mode],
            [each for each in EXPLAINED if (each.suite, each.mode) == (suite.name, mode)],
        )
    ]
    if (guarded := found["keyed"].guarded) < suite.guards:
        failures.append(
            f"{suite.name} (keyed): {guarded} requests were guarded, fewer than {suite.guards}."
        )
    return failures


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
