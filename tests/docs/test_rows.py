"""What the source documents ask: no row is lost or told twice, and what it names is there."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from .pages import DOCS, ROOT, anchors

#: Document → how many rows it has.
NUMBERS = {
    "AWS Lambda Powertools' idempotency utility": 31,
    "A stateful decorator on DynamoDB": 11,
    "An essay on idempotency keys, sagas and outboxes": 19,
    "An architecture with scenarios and numbers": 25,
    "A dialogue on EventBridge": 5,
}


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the module that mkdocs loads from its folder."""
    monkeypatch.syspath_prepend(str(DOCS))
    monkeypatch.delitem(sys.modules, "rows", raising=False)
    return import_module("rows")


@pytest.fixture
def rows(source: Any) -> list[Any]:
    return [row for rows in source.DOCUMENTS.values() for row in rows]


@cache
def names_in(file: Path) -> set[str]:
    """Return the names of a file's tests, and of classes that inherit some, without importing
    it.
    """
    if not file.is_file():
        return set()
    return set(named(ast.parse(file.read_text(encoding="utf-8")).body))


def named(body: list[ast.stmt], inside: str = "") -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
            "test_"
        ):
            yield inside + node.name
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield node.name
            yield from named(node.body, f"{node.name}::")


def leads_somewhere(where: str) -> bool:
    """Is there such a page with its heading, or such a module of the package?"""
    if where.endswith(".py"):
        return (ROOT / "django_idempotency" / where).is_file()
    page, _, anchor = where.partition("#")
    return (DOCS / page).is_file() and (not anchor or anchor in anchors(DOCS / page))


def test_each_document_has_its_rows(source: Any) -> None:
    """No row of a document is dropped unnoticed."""
    assert {title: len(rows) for title, rows in source.DOCUMENTS.items()} == NUMBERS


def test_no_row_is_there_twice(rows: list[Any]) -> None:
    assert [
        says for says, count in Counter(row.says.casefold() for row in rows).items() if count > 1
    ] == []


def test_each_place_is_there(rows: list[Any]) -> None:
    """The page and its heading, or the module."""
    assert [row.where for row in rows if not leads_somewhere(row.where)] == []


def test_each_test_is_there(rows: list[Any]) -> None:
    """Each is named as pytest takes it, and once in a row."""
    shown = [(row.says, test) for row in rows for test in row.shown.split()]
    assert [
        test
        for _, test in shown
        if test.partition("::")[2] not in names_in(ROOT / test.partition("::")[0])
    ] == []
    assert len(set(shown)) == len(shown)


def test_each_row_is_short_and_shown(rows: list[Any]) -> None:
    """It has at most twelve words, and a test, or a sentence that says why there is none."""
    assert [
        row.says for row in rows if len(row.says.split()) > 12 or not row.says.endswith(".")
    ] == []
    assert [row.says for row in rows if not (row.shown or row.but)] == []


def test_the_page_has_each_row(source: Any, rows: list[Any]) -> None:
    """In a table below its document, with a link that has the heading's words."""
    page = source.asked()
    assert [row.says for row in rows if f"\n| {row.says} | " not in page] == []
    assert [title for title in NUMBERS if f"### {title}\n" not in page] == []
    links = re.findall(r"\[([^\]]+)\]\(\.\./([^)]+)\)", page)
    assert {where for _, where in links} == {
        row.where for row in rows if not row.where.endswith(".py")
    }
    assert (
        "Batches, deadlines and durable functions → Hosts with a limit",
        "how-to/batches-and-durable-functions.md#hosts-with-a-limit",
    ) in links
    assert [where for words, where in links if "#" in where and " → " not in words] == []
