"""CONTRIBUTING.md names what is there."""

from __future__ import annotations

import re

import pytest

from .pages import ROOT

pytestmark = pytest.mark.unit


def test_each_name_is_in_the_code() -> None:
    """Constants, classes, functions and attributes are found in the package or in the tests."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    sources = "\n".join(
        path.read_text(encoding="utf-8")
        for folder in ("django_idempotency", "tests", "testproject", "benchmarks", "docs")
        for path in (ROOT / folder).rglob("*.py")
    )
    words = set(re.findall(r"\w+", sources + (ROOT / "Makefile").read_text(encoding="utf-8")))
    named = set(re.findall(r"`([A-Za-z]\w+)(?:\(\))?`", page))
    # Beginnings of variables of the environment.
    assert {name for name in named - words if not name.endswith("_")} == set()
