"""What the pages say of extras is what pyproject.toml installs."""

from __future__ import annotations

import re

from .pages import ROOT, pages, table

PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
#: Extra → the names of the packages that it installs.
EXTRAS = {
    name: [re.split(r"[>=\[;<]", each)[0] for each in re.findall(r'"([^"]+)"', packages)]
    for name, packages in re.findall(r"^([\w-]+) = \[(.*)\]", PROJECT, re.MULTILINE)
}
#: Package → what people call it.
CALLED = {"djangorestframework": "Django REST framework", "redis": "redis-py"}


def test_the_table_of_extras() -> None:
    """Each row names exactly the packages that its extra installs."""
    rows = table("index.md", "You need Python")
    assert rows
    for extra, installs, _ in rows:
        packages = EXTRAS[extra.strip("`")]
        assert installs.partition(" (")[0] == " and ".join(
            CALLED.get(each, each) for each in packages
        )


def test_each_extra_that_a_page_names() -> None:
    """It exists."""
    texts = [page.read_text(encoding="utf-8") for page in (*pages(), ROOT / "README.md")]
    named = {
        name
        for text in texts
        for group in re.findall(r"django-idempotency\[([\w,-]+)\]", text)
        for name in group.split(",")
    }
    assert named >= {"rest", "client", "redis"}
    assert named - EXTRAS.keys() == set()
