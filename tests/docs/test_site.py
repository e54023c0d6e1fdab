"""The site's navigation, and the long description that a package index would show."""

from __future__ import annotations

import re
import sys
from collections import Counter
from typing import Any

import pytest

from .pages import DOCS, ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LINK = re.compile(r"\]\(([^()\s]+)\)")


def test_groups_are_small() -> None:
    """Groups have at most eight entries, at every level."""
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    sizes: Counter[tuple[str, ...]] = Counter()
    path: list[str] = []
    for indent, title in re.findall(r"^( +)- (.+?):", navigation, re.MULTILINE):
        path = [*path[: len(indent) // 4], title]
        sizes[tuple(path[:-1])] += 1
    assert sizes[()] <= 8
    assert {group: size for group, size in sizes.items() if size > 8} == {}


def described(project: dict[str, Any]) -> str:
    """Return README.md as the build turns it into the long description."""
    hook = project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    (fragment,) = hook["fragments"]
    text: str = (ROOT / fragment["path"]).read_text(encoding="utf-8")
    for substitution in hook["substitutions"]:
        text = re.sub(substitution["pattern"], substitution["replacement"], text)
    return text


@pytest.fixture
def pyproject() -> str:
    return (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_no_link_of_the_description_is_dead(pyproject: str) -> None:
    """The description has no relative link: on an index it would lead nowhere."""
    assert [
        link for link in LINK.findall(described(tomllib.loads(pyproject))) if "://" not in link
    ] == []


def test_with_a_home_its_links_lead_to_the_site(pyproject: str) -> None:
    """Filled in as the comments say, every link to a page becomes that page's address, and no other
    link remains.
    """
    filled = re.sub(r"^# (?=\w+ = |\[\[tool)", "", pyproject, flags=re.MULTILINE)
    filled = filled.replace("https://…", "https://docs.example")
    project = tomllib.loads(filled)
    links = LINK.findall(described(project))
    base = project["project"]["urls"]["Documentation"]
    pages = [link.removeprefix(base).partition("#")[0] for link in links]
    assert len(pages) > 20
    assert [page for page in pages if not (DOCS / f"{page.rstrip('/')}.md").is_file()] == []
