"""Run each suite in each mode, two at a time, until the time is over."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ..environments import inherited
from .environment import CACHE, PYTHON
from .reports import Outcomes, read
from .suites import HERE, Suite

RESULTS = CACHE / "results"
#: One for each core that CI has. A suite runs in one process, in its own order, the same in each
#: mode.
AT_A_TIME = 2


class Cut(Exception):
    """A run did not end in time, or ended without a report."""


@dataclass(frozen=True, kw_only=True)
class Run:
    suite: Suite
    mode: str
    outcomes: Outcomes
    #: How often each event of this package happened, and how many requests were given a key.
    counts: Mapping[str, int]
    seconds: float

    @property
    def guarded(self) -> int:
        return self.counts.get("claimed", 0) + self.counts.get("taken_over", 0)


def run_all(
    suites: Sequence[Suite], modes: Sequence[str], deadline: float
) -> tuple[list[Run], list[str]]:
    """Return the runs that ended, and a sentence for each that did not."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    runs, complaints = [], []
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        started = [
            pool.submit(run_one, suite, mode, deadline) for suite in suites for mode in modes
        ]
        for each in started:
            try:
                runs.append(each.result())
            except Cut as cut:
                complaints.append(str(cut))
    return runs, complaints


def run_one(suite: Suite, mode: str, deadline: float) -> Run:
    """Run one suite in one mode.

    Raises `Cut` if it is not finished by the deadline, or has nothing to report.
    """
    started = time.monotonic()
    place = RESULTS / f"{suite.name.replace(', ', '-').replace(' ', '-')}.{mode}"
    report, counted = place.with_name(f"{place.name}.xml"), place.with_name(f"{place.name}.json")
    for earlier in (report, counted):
        earlier.unlink(missing_ok=True)
    pytest = [
        str(PYTHON),
        "-m",
        "pytest",
        "-q",
        "-p",
        "foreign_guard",
        "-p",
        "no:django_idempotency",
    ]
    # The folder is in our own repository, whose project must not be found.
    plain = [
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
        "-p",
        "no:xdist",
        "-o",
        "django_find_project=false",
    ]
    environment = {
        **inherited(),
        **suite.environment,
        "PYTHONPATH": _path([str(HERE / "guard"), suite.environment.get("PYTHONPATH", "")]),
        "FOREIGN_MODE": mode,
        "FOREIGN_COUNTS": str(counted),
    }
    log = place.with_name(f"{place.name}.log")
    call(
        [*pytest, *plain, f"--junitxml={report}", *suite.options],
        CACHE / suite.archive.folder,
        environment,
        log,
        deadline,
    )
    if not report.exists() or not counted.exists():
        raise Cut(
            f"{suite.name} ({mode}) has nothing to report. The end of its output:\n{tail(log)}"
        )
    return Run(
        suite=suite,
        mode=mode,
        outcomes=read(report),
        counts=json.loads(counted.read_text(encoding="utf-8")),
        seconds=time.monotonic() - started,
    )


def call(
    command: list[str], folder: Path, environment: dict[str, str], log: Path, deadline: float
) -> int:
    """Run a command, and what it starts, until it ends. Raises `Cut` at the deadline."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return process.wait(max(deadline - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            raise Cut(f"{log.stem} was cut: the time for all suites is over.") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def tail(log: Path, lines: int = 30) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


def _path(folders: Iterable[str]) -> str:
    return os.pathsep.join(folder for folder in folders if folder)
