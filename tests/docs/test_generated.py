"""The tables that the site makes from the code have every check, every command and every option."""

from __future__ import annotations

import re
import sys
from http import HTTPStatus
from importlib import import_module
from typing import Any

import pytest

from django_idempotency.core.dialects import FACTS
from django_idempotency.errors import IdempotencyError
from tests.support.dialects import SHIPPED

from ..checks.test_catalogue import KINDS
from ..support.commands import OURS, helped, typed
from .pages import DOCS, pages, text
from .test_problems import declared, problems

#: Options that every command has.
DJANGOS = [
    "help",
    "version",
    "verbosity",
    "settings",
    "pythonpath",
    "traceback",
    "no-color",
    "force-color",
    "skip-checks",
]


@pytest.fixture
def generated(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the module that mkdocs loads from its folder."""
    monkeypatch.syspath_prepend(str(DOCS))
    for name in ("generated", "reading", "rows"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return import_module("generated")


def test_every_check(generated: Any) -> None:
    """The page has each check once, with its message and hint."""
    page = generated.filled(text("reference/checks.md"))
    assert sorted(
        re.findall(r"^\| `([EWI]\d+)` \| `.+` \| `.+` \|$", page, re.MULTILINE)
    ) == sorted(kind.__name__ for kind in KINDS)


def test_each_code_on_a_page_is_a_check() -> None:
    """No page names a check that is gone."""
    known = {kind.__name__ for kind in KINDS}
    named = {
        (page.name, code) for page in pages() for code in re.findall(r"`([EWI]\d{3})`", text(page))
    }
    assert {(page, code) for page, code in named if code not in known} == set()


@pytest.mark.parametrize("name", OURS)
def test_every_option(generated: Any, name: str) -> None:
    """The page has the help of each command and subcommand as it is printed, and of Django's own
    options none.
    """
    page = generated.filled(text("reference/checks.md"))
    section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    for words in typed(name):
        options = set(re.findall(r"^ +(?:-v, )?--([\w-]+)", helped(words), re.MULTILINE))
        assert f"usage: manage.py {' '.join(words)} [-h]" in section
        assert {each for each in options - {*DJANGOS} if f"--{each}" not in section} == set()
    assert "--pythonpath" not in section
    assert section.count("exit status:") == len(typed(name))


def test_every_error(generated: Any) -> None:
    """Each error has a section, as the first with its code, or a row."""
    page = generated.filled(text("reference/problems.md"))
    rows = re.findall(r"^\| `(\w+)` \|", page.partition("## Python errors")[2], re.MULTILINE)
    sections = [error.__name__ for error in problems().values()]
    assert sorted(rows + sections) == sorted(error.__name__ for error in declared(IdempotencyError))


def test_every_refusal(generated: Any) -> None:
    """Each status of a refusal is in one row, with how it ends for work that wrote and for work
    that did not.
    """
    rows = [row.strip("| ").split(" | ") for row in generated.TABLES["refusals"]().splitlines()[2:]]
    found = [int(status.strip("`")) for row in rows for status in row[0].split(", ")]
    assert sorted(found) == [each.value for each in HTTPStatus if 400 <= each < 500]
    ends = {status.strip("`"): row[1:] for row in rows for status in row[0].split(", ")}
    assert ends["402"] == ["remembered", "remembered", "free", "remembered", "free"]
    assert ends["429"] == ["free"] * 5


def test_every_dialect(generated: Any) -> None:
    """Each table has every dialect that is shipped, and the last one every fact."""
    for table in ("names", "statuses", "memory"):
        found = re.findall(r'^\| `"?(\w+)(?:"|\(\))` \|', generated.TABLES[table](), re.MULTILINE)
        assert [each.lower() for each in found] == [each.name for each in SHIPPED]
    assert generated.TABLES["attributes"]().count("\n") == 1 + len(FACTS)


def test_every_table_has_its_place(generated: Any) -> None:
    """Nothing is made that no page shows, and no page asks for what is not made."""
    shown = [
        mark for page in pages() for mark in re.findall(r"<!-- generated: ([\w-]+) -->", text(page))
    ]
    assert sorted(shown) == sorted(generated.TABLES)


def test_the_source_in_reading_order(generated: Any) -> None:
    """Each file of the core has its place, and says what it decides."""
    page = generated.filled(text("explanation/for-reviewers.md"))
    rows = re.findall(r"^\| `([\w/]+)\.py` \| (\d+) \| (.+) \|$", page, re.MULTILINE)
    source = sys.modules["reading"]
    assert sorted(name for name, _, _ in rows) == sorted(source.files())
    named = set(re.findall(r"`([\w/]+)\.py` `", page.partition("<!--")[0]))
    assert named <= set(source.files())
