"""Run the suite on every database that can be reached, and report at the end which could not.

    python -m tests.run [sqlite] [postgresql] [mariadb] [mysql] [-- pytest arguments]

SQLite comes first, then the servers at the same time: there many tests wait. Each test runs where
it can show something new: see `selection`. An -m among the arguments replaces that choice. With
REQUIRE_SERVICES=1 a database or a Redis that cannot be reached is a failure, but MySQL only if it
is named.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from xml.etree import ElementTree

from . import matrix

ROOT = Path(__file__).resolve().parent.parent
#: Is each run that passes noted for the matrix of versions?
NOTED = os.environ.get("MATRIX") == "1"
REQUIRED = os.environ.get("REQUIRE_SERVICES") == "1"

DATABASES = ("sqlite", "postgresql", "mariadb", "mysql")
#: Where nobody names a database, these run if they are there.
OPTIONAL = frozenset({"mysql"})
#: Locally the order is new each time, which finds tests that depend on each other; CI's red run can
#: be repeated, except for which process took which test.
ORDER = ("--randomly-seed=2026",) if os.environ.get("CI") == "true" else ()
#: Database → processes, for CI's two cores: a third of SQLite's time its tests wait, and on a
#: server more. MariaDB and MySQL, which run beside PostgreSQL, have a third of its work.
PROCESSES = {"sqlite": 3, "postgresql": 4, "mariadb": 2, "mysql": 2}
UNREACHABLE = 3
#: Prints what the database is; ends with UNREACHABLE and the driver's reason when it does not
#: respond.
PROBE = f"""
import sys
from django.db import OperationalError, connection
try:
    connection.ensure_connection()
except OperationalError as error:
    print(" ".join(str(error).split()))
    sys.exit({UNREACHABLE})
print(connection.display_name, ".".join(map(str, connection.get_database_version())))
"""


@dataclass(frozen=True, kw_only=True)
class Counts:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    #: The names of those that failed.
    failures: tuple[str, ...] = ()

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            passed=self.passed + other.passed,
            failed=self.failed + other.failed,
            skipped=self.skipped + other.skipped,
            failures=self.failures + other.failures,
        )

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


UNREACHED = Counts(failed=int(REQUIRED))


def environment(database: str) -> Mapping[str, str]:
    """Return the environment of a run.

    One of them has Python's development mode, without its slow allocator. With it asyncio notices
    calls from the wrong thread, and takes half as long again: too much for SQLite, where most tests
    run.
    """
    return {
        "PYTHONDEVMODE": "1" if database == "postgresql" else "",
        "PYTHONMALLOC": "pymalloc",
        **os.environ,
        "DATABASE": database,
        "DJANGO_SETTINGS_MODULE": "testproject.settings",
    }


def probe_database(database: str) -> tuple[bool, str]:
    """Return whether the database responds, and its version or the reason.

    Any failure but a refused connection is for pytest to show.
    """
    command = [sys.executable, "-c", PROBE]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment(database),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode != UNREACHABLE, done.stdout.strip() or "(the probe failed)"


def probe_redis() -> tuple[bool, str]:
    """Return whether Redis responds to a PING, and its response or the reason."""
    try:
        with socket.create_connection(("127.0.0.1", 6379), timeout=5) as connection:
            connection.sendall(b"PING\r\n")
            answer = connection.recv(64).decode(errors="replace").strip()
    except OSError as error:
        return False, str(error)
    return answer == "+PONG", f"answers {answer}"


def selection(database: str, before: Collection[str]) -> str:
    """Return which tests, by their marks, a database runs besides what those before it run."""
    conditions = []
    if before:
        conditions += ["not unit", "(faults or not any_database)"]  # SQLite has no faults
    if database == "sqlite":
        conditions.append("(unit or not faults or sqlite)")
    elif not {"sqlite"}.issuperset(before):
        conditions.append("not either_server")
    return " and ".join(conditions)


def run(
    database: str, before: Collection[str], arguments: list[str], output: IO[str] | None = None
) -> Counts:
    """Run pytest once; it prints to `output`, or at once.

    A run that crashes, or runs nothing, counts as a failure.
    """
    print(f"\n=== {database} {'=' * (100 - len(database))}", file=output, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "junit.xml"
        parallel = (f"--numprocesses={PROCESSES[database]}", "--dist=worksteal")
        command = [sys.executable, "-m", "pytest", f"--junitxml={report}", *parallel, *ORDER]
        command += ["-m", selection(database, before), *arguments]
        code = subprocess.run(
            command, cwd=ROOT, env=environment(database), stdout=output, stderr=output, check=False
        ).returncode
        counts = read(report) if report.exists() else Counts()
    if code and not counts.failed:
        counts += Counts(failed=1)
    if NOTED and not counts.failed:
        tests = "one case of each" if "--one-case" in arguments else "the suite"
        matrix.note(
            by=".ci/run",
            name=tests,
            passed=counts.passed,
            skipped=counts.skipped,
            on=matrix.versions("database", environment=environment(database)),
        )
    return counts


def run_together(
    databases: Sequence[str], before: Sequence[str], arguments: list[str]
) -> dict[str, Counts]:
    """Run pytest on several databases at once.

    The first prints at once, the others when they are done.
    """
    with ThreadPoolExecutor() as pool, ExitStack() as outputs:
        files = [outputs.enter_context(tempfile.TemporaryFile("w+")) for _ in databases[1:]]
        runs = [
            pool.submit(run, database, [*before, *databases[:number]], arguments, output)
            for number, (database, output) in enumerate(zip(databases, [None, *files], strict=True))
        ]
        counts = {database: each.result() for database, each in zip(databases, runs, strict=True)}
        for file in files:
            file.seek(0)
            print(file.read(), end="", flush=True)
    return counts


def read(report: Path) -> Counts:
    total = Counts()
    for suite in ElementTree.parse(report).iter("testsuite"):
        failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped = int(suite.get("skipped", 0))
        names = tuple(
            f"{case.get('classname')}::{case.get('name')}"
            for case in suite.iter("testcase")
            if case.find("failure") is not None or case.find("error") is not None
        )
        passed = int(suite.get("tests", 0)) - failed - skipped
        total += Counts(passed=passed, failed=failed, skipped=skipped, failures=names)
    return total


def main(arguments: list[str]) -> int:
    split = arguments.index("--") if "--" in arguments else len(arguments)
    named, for_pytest = arguments[:split], arguments[split + 1 :]
    chosen = named or list(DATABASES)
    if unknown := set(chosen) - set(DATABASES):
        print(
            f"Unknown: {', '.join(sorted(unknown))}. There are {', '.join(DATABASES)}.",
            file=sys.stderr,
        )
        return 2

    total, summary, ran = Counts(), [], dict[str, Counts]()
    probes = {database: probe_database(database) for database in chosen}
    reached = [database for database in chosen if probes[database][0]]
    # SQLite keeps two cores busy: beside a server, both take longer than one after the other
    # (measured). On a server many tests wait: for a lease, a lock, the end of a process.
    servers = [database for database in reached if database != "sqlite"]
    for together in ([database for database in reached if database not in servers], servers):
        if together:
            ran |= run_together(together, list(ran), for_pytest)
    for database, (_, word) in probes.items():
        spared = not named and database in OPTIONAL
        missed = "not reached" if spared else "NOT REACHED"
        summary.append((database, str(ran.get(database, missed)), word))
        total += ran.get(database, Counts() if spared else UNREACHED)
    if len(chosen) > 1:
        answered, word = probe_redis()
        total += Counts() if answered else UNREACHED
        summary.append(("redis", "reached" if answered else "NOT REACHED", word))

    print("\n=== Summary " + "=" * 92)
    for name, result, word in summary:
        print(f"{name:<12}{result:<40}{word}")
        for failure in ran.get(name, Counts()).failures:
            print(f"  failed: {failure}")
    if REQUIRED and any(result == "NOT REACHED" for _, result, _ in summary):
        print("REQUIRE_SERVICES=1: each that was NOT REACHED counts as failed.")
    print(total, flush=True)
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
