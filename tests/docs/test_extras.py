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


def test_nobody_is_told_to_install_a_name_from_an_index() -> None:
    """No index has the package under a name that is ours: each command names a folder."""
    modules = (ROOT / "django_idempotency").rglob("*.py")
    texts = [path.read_text(encoding="utf-8") for path in (*modules, *pages(), ROOT / "README.md")]
    assert re.findall(r"install [\"']?django.idempotency.*", "\n".join(texts)) == []
    assert re.findall(r"(?<!\./)django-idempotency\[[^{].*", "\n".join(texts)) == []


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
