"""Every link leads somewhere, and every page is in the navigation."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from .pages import DOCS, ROOT, anchors, links, pages

SOURCES = [*pages(), ROOT / "README.md"]
NAVIGATION = re.findall(
    r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE
)


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def test_relative_links() -> None:
    """The file exists, and so does the heading."""
    assert [
        f"{name(page)}: {link}"
        for page in SOURCES
        for link in links(page)
        if not leads_somewhere(page, link)
    ] == []


def leads_somewhere(page: Path, link: str) -> bool:
    if re.match(r"[a-z]+:", link):
        return True
    target, _, anchor = link.partition("#")
    file = (page.parent / target).resolve() if target else page
    return file.exists() and (not anchor or anchor in anchors(file))


def test_headings_are_distinct() -> None:
    """Headings are distinct: two of one name would get anchors that change when a third is
    added.
    """
    twice = {
        name(page): [anchor for anchor, count in Counter(anchors(page)).items() if count > 1]
        for page in SOURCES
    }
    assert {page: found for page, found in twice.items() if found} == {}


def test_the_navigation_has_every_page() -> None:
    """The navigation has every page once."""
    assert sorted(NAVIGATION) == [page.relative_to(DOCS).as_posix() for page in pages()]
