"""The benchmark runs and fills its table. What it measures is for people to judge, never for a test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

ROWS = (
    "first request, atomic ",
    "first request, atomic, by the middleware",
    "first request, lease",
    "replay ",
    "busy (409)",
    "mismatch (422)",
    "no key, under the middleware ",
    "no key, under the decorator",
    "first request, atomic, by the mixin",
    "replay, by the mixin",
    "no key, under the mixin",
    "claim of a new key, atomic / a bare INSERT of the row",
    "claim of a new key, atomic / get_or_create",
    "claim of a known key (replay) / its SELECT by key",
    "settle / the same UPDATE",
    "at 100 rows",
    "rows deleted in a second",
    "claim and settle beside it, p99",
)


def test_the_table_has_its_rows() -> None:
    """`make bench` measures each case, in a database of its own."""
    environment = {**os.environ, "TEST_DATABASE_SUFFIX": f"_smoke{os.getpid()}"}
    effort = ["--databases", "sqlite", "--rounds", "1", "--samples", "2", "--rows", "100"]
    command = [sys.executable, "-m", "benchmarks", *effort]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert "=== SQLite" in done.stdout
    assert [row for row in ROWS if not any(line.startswith(row) for line in lines)] == []
    assert not list(ROOT.glob(f"*_smoke{os.getpid()}*")), "the database is dropped"
