"""What has run on which versions: docs/matrix.json, of which a page and README's table are made.

    python -m tests.matrix

`.ci/run`, `make reach` and `make foreign` leave a file in .cache/matrix for each run of theirs in
which no test failed. This takes them over into docs/matrix.json, in place of older runs of the same,
and writes README's table again.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "docs" / "matrix.json"
README = ROOT / "README.md"
#: Where runs leave their files.
FOLDER = ROOT / ".cache" / "matrix"

#: Prints the versions that an interpreter's environment has; `database` is "" where none is asked.
PROBE = """
import json, platform, sys
from importlib.metadata import PackageNotFoundError, version

def of(package):
    try:
        return version(package)
    except PackageNotFoundError:
        return ""

found = {
    "python": platform.python_version(),
    "django": of("django"),
    "rest_framework": of("djangorestframework"),
    "server": "",
    "driver": "",
}
if "database" in sys.argv:
    from django.db import connection

    connection.ensure_connection()
    # Where Django does not know the difference, the server says it.
    found["server"] = " ".join(
        [connection.display_name, ".".join(map(str, connection.get_database_version()))]
    )
    # PyMySQL, under the name of mysqlclient, says a version of that itself; sqlite3 has none.
    name = connection.Database.__name__.partition(".")[0]
    said = of(name) or str(getattr(connection.Database, "__version__", "")).split(" ")[0]
    found["driver"] = f"{name} {said}".strip()
print(json.dumps(found))
"""


@dataclass(frozen=True, kw_only=True)
class Versions:
    """The versions of an environment. `rest_framework` and `driver` are "" where there is none."""

    python: str
    django: str
    rest_framework: str = ""
    #: The database, or another server, with its version.
    server: str = ""
    #: What speaks to it, with its version.
    driver: str = ""


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A run in which no test failed."""

    #: The command that runs it again.
    by: str
    #: Which tests: "the suite", or the name of one server, driver or foreign suite.
    name: str
    #: Of the day, as ISO 8601 writes it.
    date: str
    passed: int
    skipped: int
    versions: Versions

    @property
    def of(self) -> tuple[str, ...]:
        """What a later run takes the place of. A patch of Python or Django is the same version."""
        python, django = minor(self.versions.python), minor(self.versions.django)
        return (self.by, self.name, python, django, self.versions.server.partition(" ")[0])


def minor(version: str) -> str:
    """Return the first two numbers of a version."""
    return ".".join(version.split(".")[:2])


def versions(
    *options: str,
    command: Sequence[str] = (sys.executable,),
    environment: Mapping[str, str] = os.environ,
) -> Versions:
    """Ask an interpreter for its versions; with "database", also for those of the database that the
    environment names.
    """
    done = subprocess.run(
        [*command, "-c", PROBE, *options],
        cwd=ROOT,
        env={"DJANGO_SETTINGS_MODULE": "testproject.settings", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return Versions(**json.loads(done.stdout.splitlines()[-1]))


def note(
    *, by: str, name: str, passed: int, skipped: int, on: Versions, folder: Path = FOLDER
) -> Path:
    """Leave a file for a run in which no test failed, and return its path."""
    today = dt.datetime.now(tz=dt.timezone.utc).date().isoformat()
    ran = Ran(by=by, name=name, date=today, passed=passed, skipped=skipped, versions=on)
    folder.mkdir(parents=True, exist_ok=True)
    name_of_file = re.sub(r"[^\w.-]+", "-", "-".join(ran.of))
    file = folder / f"{name_of_file}.json"
    file.write_text(json.dumps(asdict(ran), indent=2) + "\n", encoding="utf-8")
    return file


def read(text: str) -> Ran:
    found = json.loads(text)
    return Ran(**{**found, "versions": Versions(**found["versions"])})


def load(file: Path = KEPT) -> list[Ran]:
    """Return the runs that are kept."""
    return [read(json.dumps(each)) for each in json.loads(file.read_text(encoding="utf-8"))]


def merged(kept: Iterable[Ran], new: Iterable[Ran]) -> list[Ran]:
    """Return the runs that are kept, each in place of older ones of the same."""
    found: dict[tuple[str, ...], Ran] = {}
    for ran in sorted([*kept, *new], key=lambda each: each.date):
        found[ran.of] = ran
    return sorted(found.values(), key=lambda each: each.of)


# ------------------------------------------------------------------------------------ README's table


def numbers(version: str) -> list[int]:
    return [int(each) for each in re.findall(r"\d+", version)]


def one_of_each(found: Iterable[str]) -> str:
    """Join what is not empty: each once, with names in their order, and with versions by number."""
    once = {each for each in found if each}
    return " · ".join(
        sorted(once, key=lambda each: (re.sub(r"[\d.]+", "", each).lower(), numbers(each)))
    )


def grouped(found: Iterable[str]) -> str:
    """Join names with versions, each name once: "PostgreSQL 17.10, 18.4"."""
    versions: dict[str, list[str]] = {}
    for each in sorted({each for each in found if each}, key=numbers):
        name, _, version = each.rpartition(" ")
        if not numbers(version):
            name, version = each, ""
        versions.setdefault(name, []).append(version)
    return " · ".join(
        f"{name} {', '.join(filter(None, versions[name]))}".strip()
        for name in sorted(versions, key=str.lower)
    )


def short(name: str) -> str:
    """Return a server or a driver with the two numbers of its version."""
    return re.sub(r"(\d+\.\d+)[\d.a-z+-]*", r"\1", name)


def table(runs: Iterable[Ran]) -> str:
    """Return README's table of what ran."""
    on = [ran.versions for ran in runs]
    rows = {
        "Python": one_of_each(minor(each.python) for each in on),
        "Django": one_of_each(minor(each.django) for each in on),
        "REST framework": one_of_each(minor(each.rest_framework) for each in on),
        "servers": grouped(short(each.server.partition(",")[0]) for each in on),
        "drivers": grouped(short(part) for each in on for part in each.driver.split(", ")),
    }
    lines = ["| tests have passed on | |", "|---|---|"]
    lines += [f"| {name} | {found} |" for name, found in rows.items()]
    return "\n".join(lines)


BEGIN, END = "<!-- matrix -->\n", "\n<!-- /matrix -->"


def with_table(readme: str, runs: Iterable[Ran]) -> str:
    """Return README with its table as these runs say it."""
    before, rest = readme.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}{table(runs)}{END}{after}"


def main() -> int:
    new = [read(file.read_text(encoding="utf-8")) for file in sorted(FOLDER.glob("*.json"))]
    runs = merged(load(), new)
    KEPT.write_text(json.dumps([asdict(ran) for ran in runs], indent=1) + "\n", encoding="utf-8")
    README.write_text(with_table(README.read_text(encoding="utf-8"), runs), encoding="utf-8")
    print(f"{len(new)} runs taken over; {len(runs)} are in docs/matrix.json.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
