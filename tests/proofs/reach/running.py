"""Run pytest in a process of its own, and read what became of its tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ... import matrix
from ...matrix import Versions
from ...run import Counts, read
from .obtaining import CACHE, ROOT

#: Seconds for the tests against one server.
LIMIT = 1200


@dataclass(frozen=True, kw_only=True)
class Result:
    """What is known of one server: its version and its tests, or why there are none."""

    version: str
    counts: Counts | None = None
    note: str = ""
    #: The versions of all, where another interpreter than ours ran the tests.
    on: Versions | None = None


def of_database(place: Mapping[str, str], python: str = sys.executable) -> Versions:
    """Return the versions of an interpreter's packages, and of the database at a place."""
    environment = {**os.environ, **place}
    return matrix.versions("database", command=[python], environment=environment)


def run(
    paths: Sequence[str],
    environment: Mapping[str, str],
    *options: str,
    command: Sequence[str] = (sys.executable, "-m", "pytest"),
) -> Counts:
    """Run these tests against the server that `environment` names.

    `command` starts pytest, whose output is shown.
    """
    given = {**os.environ, "DJANGO_SETTINGS_MODULE": "testproject.settings", **environment}
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        report = Path(folder) / "junit.xml"
        arguments = ["-q", "-r", "fE", "--color=no", f"--junitxml={report}", *options, *paths]
        # A group of its own: xdist's workers end with it.
        process = subprocess.Popen(
            [*command, *arguments], cwd=ROOT, env=given, start_new_session=True
        )
        try:
            code = process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            return Counts(failed=1)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        counts = read(report) if report.exists() else Counts()
    return counts if code == 0 or counts.failed else counts + Counts(failed=1)
