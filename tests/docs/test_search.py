"""The site's search finds the page that a person wants: its own index is asked, with the ranking of
its theme.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ..checks.test_catalogue import KINDS
from .pages import ROOT, pages

pytestmark = pytest.mark.slow  # it builds the site

pytest.importorskip("mkdocs")
lunr = pytest.importorskip("lunr")
stemmer = pytest.importorskip("lunr.stemmer").stemmer


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site, with each warning an error."""
    folder: Path = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(folder),
    ]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Search:
    """Ranks as mkdocs-material does in the browser: each word is a prefix, and a section counts
    more with all words.
    """

    def __init__(self, file: Path) -> None:
        index = json.loads(file.read_text(encoding="utf-8"))
        fields = [
            {"field_name": name, "boost": said["boost"]}
            for name, said in index["config"]["fields"].items()
        ]
        separator = index["config"]["separator"]
        documents = [
            (
                {
                    name: re.sub(rf"<[^>]*>|{separator}", " ", each.get(name, ""))
                    for name in ("title", "text", "tags")
                }
                | {"location": each["location"]},
                {"boost": each.get("boost", 1)},
            )
            for each in index["docs"]
        ]
        builder = lunr.get_default_builder()
        for pipeline in (builder.pipeline, builder.search_pipeline):
            pipeline.remove(stemmer)  # the theme has none
        self.index = lunr.lunr(ref="location", fields=fields, documents=documents, builder=builder)

    def first(self, query: str) -> str:
        """Return the page of the best section."""
        words = query.lower().split()
        scores: dict[str, float] = {}
        for found in self.index.search(" ".join(f"{word}*" for word in words)):
            terms = found["match_data"].metadata
            met = sum(any(term.startswith(word) for term in terms) for word in words) / len(words)
            scores[found["ref"]] = found["score"] * (1 + (met + ("#" not in found["ref"])) ** 2)
        assert scores, f"nothing about {query!r}"
        return max(scores, key=lambda where: scores[where]).partition("#")[0]


@pytest.fixture(scope="module")
def search(site: Path) -> Search:
    return Search(site / "search/search_index.json")


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ("double click", "how-to/forms/"),
        ("killed worker", "how-to/unknown-outcome/"),
        ("stripe webhook", "how-to/tasks-and-messages/"),
        ("IdempotentViewMixin", "how-to/drf/"),
        ("required key missing", "how-to/troubleshooting/"),
        ("charged twice", "how-to/unknown-outcome/"),
        ("graphql", "how-to/ninja-and-graphql/"),
        ("celery", "how-to/tasks-and-messages/"),
        ("E035", "reference/checks/"),
        ("purge_idempotency", "reference/checks/"),
    ],
)
def test_the_first_result(search: Search, query: str, page: str) -> None:
    """What people type leads to the page where it is explained."""
    assert search.first(query) == page


def test_the_tables_of_the_code_are_on_the_site(site: Path) -> None:
    """The page of checks and commands is whole."""
    page = (site / "reference/checks/index.html").read_text(encoding="utf-8")
    assert [kind.__name__ for kind in KINDS if f"<code>{kind.__name__}</code>" not in page] == []
    assert '<h2 id="purge_idempotency">' in page
    assert "generated:" not in page


def test_programs_find_every_page(site: Path) -> None:
    """llms.txt names each page once, with a sentence about it."""
    lines = [
        line
        for line in (site / "llms.txt").read_text(encoding="utf-8").splitlines()
        if line.startswith("- [")
    ]
    assert len(lines) == len(set(lines)) == len(pages())
    assert [
        line for line in lines if not re.fullmatch(r"- \[[^\]]+\]\([^)]+\): \S.{10,}", line)
    ] == []
