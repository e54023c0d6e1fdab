"""Read our own documentation: tables, headings, links and code."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"

#: A fence may be indented, in a list or a tab.
_FENCE = re.compile(r"^( *)(```+)(\w*)([^\n]*)\n(.*?)^\1\2$", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^#{1,6} +(.+?)(?: +\{#([\w-]+)\})?$", re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^()\s]+)\)")
_CODE = re.compile(r"(`+)(.+?)\1")


@dataclass(frozen=True)
class Block:
    """A fenced block of code, the line of the page where it begins, and the file that its title
    names, if any.
    """

    language: str
    code: str
    line: int
    title: str = ""


def pages() -> list[Path]:
    return sorted(DOCS.rglob("*.md"))


@cache
def text(page: str | Path) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def blocks(page: Path) -> Iterator[Block]:
    for found in _FENCE.finditer(text(page)):
        code = re.sub(f"^{found[1]}", "", found[5], flags=re.MULTILINE)
        title = re.search(r'title="([^"]*)"', found[4])
        yield Block(
            found[3], code, text(page)[: found.start()].count("\n") + 2, title[1] if title else ""
        )


def prose(page: Path) -> str:
    """Return a page without its fenced code."""
    return _FENCE.sub("", text(page))


def anchors(page: Path) -> list[str]:
    """Return the anchors of a page's headings, as mkdocs makes them."""
    return [named or slug(heading) for heading, named in _HEADING.findall(prose(page))]


def slug(heading: str) -> str:
    heading = _LINK.sub("", heading.replace("`", ""))
    ascii_only = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", ascii_only).strip().lower())


def links(page: Path) -> list[str]:
    """Return the targets of a page's links, without those in code."""
    return _LINK.findall(_CODE.sub("", prose(page)))


def table(page: str, after: str) -> list[list[str]]:
    """Return the cells of the first table after a given text, without its header."""
    start = text(page).find(after)
    assert start >= 0, f"{page} has no {after!r}"
    rows = re.search(r"(?:^\|.*\|$\n?)+", text(page)[start:], re.MULTILINE)
    assert rows, f"{page} has no table after {after!r}"
    _head, _rule, *body = rows[0].splitlines()
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in body]


def checked(page: str, name: str) -> list[list[str]]:
    """Return the table that a page marks as checked."""
    return table(page, f"<!-- checked: {name} -->")


def code(cell: str) -> str:
    """Return the first `code` in a table's cell."""
    found = _CODE.search(cell)
    assert found, f"no code in {cell!r}"
    return found[2]
