"""The how-to about a store of your own is carried out: its files are written and its tests are
run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .pages import DOCS, ROOT, blocks

PAGE = DOCS / "how-to" / "your-own-store.md"


@pytest.mark.slow
def test_the_page(tmp_path: Path) -> None:
    """Every file of the page is written where the page says; then pytest passes in a project that
    has nothing else.
    """
    for block in blocks(PAGE):
        first, _, code = block.code.partition("\n")
        if first.startswith("# ") and first.endswith(".py"):
            file = tmp_path / first.removeprefix("# ")
            file.parent.mkdir(exist_ok=True)
            file.write_text(code, encoding="utf-8")
    assert {file.name for file in tmp_path.rglob("*.py")} == {
        "file_store.py",
        "test_file_store.py",
        "conftest.py",
    }
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]),
        "DJANGO_SETTINGS_MODULE": "testproject.settings",
        "DATABASE": "sqlite",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-W", "error", str(tmp_path)]
    command += [
        argument
        for plugin in ("cacheprovider", "schemathesis", "xdist")
        for argument in ("-p", f"no:{plugin}")
    ]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    written = [
        line
        for line in (tmp_path / "myproject" / "file_store.py").read_text().splitlines()
        if line.strip()
    ]
    assert len(written) <= 45, "The page says: about forty-five lines."
