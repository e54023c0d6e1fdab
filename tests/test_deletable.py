"""Without any folder of `contrib/`, `testing/`, or a store that is named by BACKEND, the core
imports and works as before.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Collection
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest

from .test_architecture import LEAVES, MODULES, PACKAGE, ROOT, SHARED

#: What is not part of the core, as names of modules and packages.
APART = (
    *(f"contrib.{path.parent.name}" for path in sorted(ROOT.glob("contrib/*/__init__.py"))),
    *("testing", *LEAVES, *SHARED),
)
PREFIXES = tuple(f"{PACKAGE}.{name}." for name in ("contrib", *APART))
CORE = [
    f"{PACKAGE}.{name}"
    for name in MODULES
    if name != PACKAGE and not f"{PACKAGE}.{name}.".startswith(PREFIXES)
]
#: The core's modules of the admin can be imported where Django's is installed.
ADMIN = ("django.contrib.admin", "django.contrib.messages", "django.contrib.sessions")
#: Walks the journeys of the budgets, and imports all modules of the core. Prints what came of that.
SCRIPT = f"""
import importlib, json, sys
import tests.budgets.project as project
project.main(*{ADMIN!r})
failed = {{}}
for name in {CORE!r}:
    try:
        importlib.import_module(name)
    except Exception as error:
        failed[name] = repr(error)
apart = [name for name in sys.modules if f"{{name}}.".startswith({PREFIXES!r})]
print(json.dumps([failed, apart]))
"""


class Found(NamedTuple):
    """What a bare project of the core's modules alone does."""

    #: Response and statements of each journey.
    journeys: dict[str, Any]
    #: The modules that cannot be imported.
    failed: dict[str, str]
    #: The modules that were loaded and are not part of the core.
    apart: list[str]


@cache
def core(*without: str) -> Found:
    """Walk the journeys, and import the core, where these modules and packages have been
    deleted.
    """
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
    assert done.returncode == 0, done.stderr
    walked, (failed, apart) = map(json.loads, done.stdout.splitlines())
    journeys = {
        name: (each["response"], each["statements"]) for name, each in walked["journeys"].items()
    }
    return Found(journeys, failed, apart)


def lay_out(folder: Path, without: Collection[str]) -> None:
    """Make a package of links to this one, and to these tests, without some modules and
    packages.
    """
    absent = [
        path.parent if path.stem == "__init__" else path
        for path in (MODULES[name] for name in without)
    ]
    above = sorted({ROOT, *(path.parent for path in absent)})
    for parent in above:
        (folder / PACKAGE / parent.relative_to(ROOT)).mkdir()
        for path in parent.iterdir():
            if path not in absent and path not in above:
                (folder / PACKAGE / path.relative_to(ROOT)).symlink_to(path)
    (folder / "tests").symlink_to(ROOT.parent / "tests")


@pytest.mark.slow
def test_the_core_loads_none_of_them() -> None:
    """They are all there, and none is asked for: so the core would not notice if one, or some, were
    missing.
    """
    assert core().apart == []


@pytest.mark.slow
def test_the_core_works_without_them() -> None:
    """Each journey has the same response and statements, and each module of the core can be
    imported.
    """
    assert core().journeys["drf_replay"] == core().journeys["plain_replay"] == (201, 1)
    assert core(*APART) == core()
    assert core().failed == {}
