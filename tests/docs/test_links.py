"""Every link leads somewhere, every page is in the navigation."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from .pages import DOCS, ROOT, anchors, links, pages

SOURCES = [*pages(), ROOT / "README.md"]
NAVIGATION = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", SOURCES, ids=name)
def test_relative_links(page: Path) -> None:
    """The file exists, and so does the heading."""
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{link}: no such file"
        if anchor:
            assert anchor in anchors(file), f"{link}: no such heading"


@pytest.mark.parametrize("page", SOURCES, ids=name)
def test_headings_are_distinct(page: Path) -> None:
    """Two of a name would get anchors that change when a third comes."""
    assert [anchor for anchor, count in Counter(anchors(page)).items() if count > 1] == []


def test_the_navigation_has_every_page() -> None:
    """Once."""
    assert sorted(NAVIGATION) == [page.relative_to(DOCS).as_posix() for page in pages()]
