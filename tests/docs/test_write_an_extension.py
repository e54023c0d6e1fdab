"""The how-to about an extension of one's own is carried out, in a project that has nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .pages import DOCS, ROOT, blocks

PAGE = DOCS / "how-to" / "write-an-extension.md"
SETTINGS = """
SECRET_KEY = "of a test, and of nothing else"
INSTALLED_APPS = [
    "django.contrib.auth", "django.contrib.contenttypes", "django_idempotency",
]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
USE_TZ = True
"""


@pytest.mark.slow
def test_the_page(tmp_path: Path) -> None:
    """Its files are written where it says, and their tests pass."""
    shop = tmp_path / "shop"
    shop.mkdir()
    (shop / "__init__.py").write_text("")
    (tmp_path / "project_settings.py").write_text(SETTINGS)
    for block in blocks(PAGE):
        first, _, code = block.code.partition("\n")
        if first.startswith("# shop/"):
            (tmp_path / first.removeprefix("# ")).write_text(code, encoding="utf-8")
    assert {file.name for file in shop.iterdir()} == {
        "__init__.py",
        "guards.py",
        "test_guards.py",
    }
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]),
        "DJANGO_SETTINGS_MODULE": "project_settings",
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "django", "test", "shop"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Ran 1 test" in done.stderr
    guards = (shop / "guards.py").read_text().splitlines()
    assert len([line for line in guards if line.strip()]) <= 20
