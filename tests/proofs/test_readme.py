"""README.md says of each folder what it proves, how it is run and what it needs."""

from __future__ import annotations

import re
from pathlib import Path

from ..docs.pages import ROOT, anchors, links

HERE = Path(__file__).parent
README = HERE / "README.md"
FOLDERS = sorted(path.parent.name for path in HERE.glob("*/__init__.py"))


def test_each_folder_is_described() -> None:
    """It has a row and a part, and the part has all that one wants to know."""
    page = README.read_text(encoding="utf-8")
    parts = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    assert sorted(parts) == sorted(re.findall(r"^\| \[`(\w+)`\]", page, re.MULTILINE)) == FOLDERS
    assert [
        name for name, part in parts.items() if "**Proves**" not in part or "**Needs**" not in part
    ] == []


def test_each_command_is_there() -> None:
    """A command of make is in the Makefile, and a folder that has one is in CONTRIBUTING.md."""
    targets = set(re.findall(r"\bmake (\w+)", README.read_text(encoding="utf-8")))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert {name for name in targets if f"\n{name}:" not in makefile} == set()
    assert {
        name for name in targets & set(FOLDERS) if f"`make {name}`" not in contributing
    } == set()


def test_links() -> None:
    """Each leads to a file or to a heading of the page."""
    broken = [
        link
        for link in links(README)
        if not (link[1:] in anchors(README) if link.startswith("#") else (HERE / link).exists())
    ]
    assert broken == []
