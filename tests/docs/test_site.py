"""The site's navigation, and the long description that a package index would show."""

from __future__ import annotations

import re
import sys
from collections import Counter
from typing import Any

import pytest

from .pages import DOCS, ROOT, pages, text

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


def test_the_docs_are_short() -> None:
    """At most 45 pages and 60,000 words: what is added replaces something."""
    assert len(pages()) <= 45
    assert sum(len(text(page).split()) for page in pages()) <= 60_000


#: What a project needs that has no wing and its records in its database: the pages of the core's code, as the budget of
#: its lines counts it (without `contrib/`, `testing/` and the other stores). The others are about a wing, another store,
#: one's own tests or store, or are for those who still choose or review.
CORE = [
    "index.md",
    "tutorial/first-charge.md",
    "explanation/what-is-promised.md",
    "how-to/troubleshooting.md",
    "how-to/drf.md",
    "how-to/plain-views.md",
    "how-to/middleware.md",
    "how-to/transactions.md",
    "how-to/scopes.md",
    "how-to/money.md",
    "how-to/functions.md",
    "how-to/store-in-the-database.md",
    "how-to/unknown-outcome.md",
    "how-to/operations.md",
    "reference/admin.md",
    "reference/signals-and-logs.md",
    "reference/settings.md",
    "reference/http.md",
    "reference/problems.md",
    "reference/checks.md",
]


def test_the_core_is_read_in_two_hours() -> None:
    """At most 20 pages and 25,000 words: what only a wing needs is on the page of that wing."""
    assert len(CORE) == len(set(CORE)) <= 20
    assert sum(len(text(page).split()) for page in CORE) <= 25_000


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
    assert [link for link in LINK.findall(described(tomllib.loads(pyproject))) if "://" not in link] == []


def test_with_a_home_its_links_lead_to_the_site(pyproject: str) -> None:
    """Filled in as the comments say, every link to a page becomes that page's address, and no other link remains."""
    filled = re.sub(r"^# (?=\w+ = |\[\[tool)", "", pyproject, flags=re.MULTILINE)
    filled = filled.replace("https://…", "https://docs.example")
    project = tomllib.loads(filled)
    links = LINK.findall(described(project))
    base = project["project"]["urls"]["Documentation"]
    pages = [link.removeprefix(base).partition("#")[0] for link in links]
    assert len(pages) > 20
    assert [page for page in pages if not (DOCS / f"{page.rstrip('/')}.md").is_file()] == []
