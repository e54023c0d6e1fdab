"""What the core's tests are, and which of them need a package of an optional app."""

from __future__ import annotations

import re
from pathlib import Path

from .core_alone import FOLDERS, NEED_MORE, PACKAGES
from .support.extras import installed_by, refused_without

HERE = Path(__file__).parent
#: Folders of optional apps, of programs, and of what all tests share.
OTHERS = {
    *("benchmarks", "budgets", "contrib", "docs", "faults", "messages", "proofs"),
    *("support", "testing", "testproject", "typing"),
}


def test_each_folder_is_of_the_core_or_not() -> None:
    folders = {path.parent.name for path in HERE.glob("*/__init__.py")}
    assert sorted(folders) == sorted({*FOLDERS, *OTHERS})


def test_no_module_is_left_out_in_vain() -> None:
    """Each imports the package for which it is left out, at its top, and that package is
    refused.
    """
    texts = {module: (HERE / module).read_text(encoding="utf-8") for module in NEED_MORE}
    imports = {module: rf"^(from|import) \S*\b{package}\b" for module, package in NEED_MORE.items()}
    assert [
        module
        for module in NEED_MORE
        if not re.search(imports[module], texts[module], re.MULTILINE)
    ] == []
    assert set(NEED_MORE.values()) <= refused_without(*PACKAGES)


def test_what_the_core_needs() -> None:
    """Its tests have Django, REST framework and Redis, and nothing of contrib or of a database's
    driver.
    """
    there = installed_by(*PACKAGES)
    assert {
        "django",
        "djangorestframework",
        "django-redis",
        "jmespath",
        "pytest-django",
        "factory-boy",
    } <= there
    assert there.isdisjoint(
        {"boto3", "celery", "cryptography", "django-ninja", "httpx", "prometheus-client", "psycopg"}
    )
