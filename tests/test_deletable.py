"""Without any one folder of `contrib/`, `testing/`, or a store that is named by BACKEND, the core works as before.

What such stores share is deleted together with all that stands on it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from .test_architecture import LEAVES, MODULES, PACKAGE, ROOT, SHARED

#: What is deleted, as names of modules and packages.
DELETED = [
    *((f"contrib.{path.parent.name}",) for path in sorted(ROOT.glob("contrib/*/__init__.py"))),
    *((name,) for name in (*LEAVES, "testing")),
    *((name, *needing) for name, needing in SHARED.items()),
]
#: No part of the core.
APART = tuple(f"{PACKAGE}.{name}." for name in ("contrib", *LEAVES, *SHARED))
#: Walks the journeys of the budgets, and imports all modules of the core. Prints what came of that.
SCRIPT = f"""
import importlib, json, pkgutil, sys
import tests.budgets.project as project
project.main()
import django_idempotency
failed = {{}}
def broken(name):
    if not f"{{name}}.".startswith({APART!r}):
        failed[name] = "it is a package"
for found in pkgutil.walk_packages(django_idempotency.__path__, "django_idempotency.", broken):
    if not f"{{found.name}}.".startswith({APART!r}):
        try:
            importlib.import_module(found.name)
        except Exception as error:
            failed[found.name] = repr(error)
print(json.dumps(failed))
"""


@cache
def core(*without: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return response and statements of each journey, and which modules cannot be imported in a bare project."""
    with TemporaryDirectory() as folder:
        lay_out(Path(folder), without)
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            cwd=folder,
            env={"PYTHONPATH": folder},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    if done.returncode != 0:
        return {}, {"journeys": done.stderr}
    walked, failed = map(json.loads, done.stdout.splitlines())
    return {name: (each["response"], each["statements"]) for name, each in walked["journeys"].items()}, failed


def lay_out(folder: Path, without: Sequence[str]) -> None:
    """Make a package of links to this one, and to these tests, without some modules and packages."""
    absent = [path.parent if path.stem == "__init__" else path for path in (MODULES[name] for name in without)]
    above = sorted({ROOT, *(path.parent for path in absent)})
    for parent in above:
        (folder / PACKAGE / parent.relative_to(ROOT)).mkdir()
        for path in parent.iterdir():
            if path not in absent and path not in above:
                (folder / PACKAGE / path.relative_to(ROOT)).symlink_to(path)
    (folder / "tests").symlink_to(ROOT.parent / "tests")


@pytest.mark.slow
@pytest.mark.parametrize("without", DELETED, ids=" ".join)
def test_the_core_works_without_it(without: tuple[str, ...]) -> None:
    """Each journey has the same response and statements, and each module of the core can be imported."""
    journeys, failed = core()
    assert journeys["drf_replay"] == journeys["plain_replay"] == (201, 1)
    assert core(*without) == (journeys, failed)
