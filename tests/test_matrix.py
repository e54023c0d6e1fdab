"""The matrix of versions says what has run, and nothing else."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from . import matrix
from .matrix import Ran, Versions
from .support.extras import project

pytestmark = pytest.mark.unit

ONE = Ran(
    by=".ci/run",
    name="the suite",
    date="2026-11-28",
    passed=10,
    skipped=1,
    versions=Versions(
        python="3.11.7",
        django="5.2.9",
        rest_framework="3.18.3",
        server="PostgreSQL 15.18",
        driver="psycopg 3.2.12",
    ),
)
PATCHED = replace(ONE, date="2026-11-29", versions=replace(ONE.versions, python="3.11.9"))
OTHER = replace(
    ONE, date="2026-11-27", versions=replace(ONE.versions, python="3.9.1", server="SQLite 3.40.1")
)


def test_readme_says_what_ran() -> None:
    """Its table is made of docs/matrix.json: `python -m tests.matrix` writes it again."""
    readme = matrix.README.read_text(encoding="utf-8")
    assert matrix.with_table(readme, matrix.load()) == readme


def test_the_metadata_claims_what_ran() -> None:
    """A classifier names a version exactly if a run has it."""
    claimed = project()["project"]["classifiers"]
    on = [ran.versions for ran in matrix.load()]
    for prefix, ran in (
        ("Programming Language :: Python :: 3.", {matrix.minor(each.python) for each in on}),
        ("Framework :: Django :: ", {matrix.minor(each.django) for each in on}),
    ):
        named = {each for each in claimed if each.startswith(prefix)}
        assert {each.rpartition(" ")[2] for each in named} == ran


def test_a_newer_run_takes_the_place_of_the_same() -> None:
    """Patches of one version are the same; another server is not."""
    assert matrix.merged([ONE, OTHER], [PATCHED]) == [PATCHED, OTHER]
    assert matrix.merged([PATCHED], [ONE]) == [PATCHED]


def test_versions_stand_in_their_order() -> None:
    """As numbers, not as text."""
    newer = replace(ONE, versions=replace(ONE.versions, server="PostgreSQL 16.4"))
    lines = matrix.table([newer, ONE, OTHER]).splitlines()
    assert lines[2:] == [
        "| Python | 3.9 · 3.11 |",
        "| Django | 5.2 |",
        "| REST framework | 3.18 |",
        "| servers | PostgreSQL 15.18, 16.4 · SQLite 3.40 |",
        "| drivers | psycopg 3.2 |",
    ]


def test_a_run_is_read_as_it_was_noted(tmp_path: Path) -> None:
    """A file bears what it is of, so that the same run has the same name."""
    noted = matrix.note(
        by=ONE.by, name=ONE.name, passed=10, skipped=1, on=ONE.versions, folder=tmp_path
    )
    again = matrix.read(noted.read_text(encoding="utf-8"))
    assert replace(again, date=ONE.date) == ONE
    assert json.loads(noted.read_text(encoding="utf-8"))["versions"] == asdict(ONE.versions)


@pytest.mark.slow
def test_an_environment_is_asked() -> None:
    """Its interpreter says its versions, and those of its packages."""
    found = matrix.versions()
    assert found.python == ".".join(map(str, sys.version_info[:3]))
    assert matrix.minor(found.django) >= "5.2"
    assert found.server == ""
