"""Packages that need settings of their own: each folder's cases run in a process apart, once per
settings module.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import django
import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
#: Settings modules beside the cases that run under them. A new folder is found automatically.
SETTINGS = sorted(
    path for path in HERE.glob("*/settings*.py") if (path.parent / "cases.py").exists()
)
#: Packages that need a newer Python than our oldest, and packages that do not support Django's
#: newest, or warn on it.
WANTS = {"allauth": (3, 11), "djstripe": (3, 11)}
NOT_ON_THE_NEWEST = {"allauth", "ninja_extra"}


@pytest.mark.slow
@pytest.mark.parametrize("settings", SETTINGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_apart(settings: Path) -> None:
    """Every case passes there. Their output is shown if one fails."""
    if sys.version_info < WANTS.get(settings.parent.name, (3, 10)):
        pytest.skip("The package wants a newer Python.")
    if settings.parent.name in NOT_ON_THE_NEWEST and (
        sys.version_info < (3, 11) or django.VERSION >= (6, 1)
    ):
        pytest.skip("The package is not ready for this Django, or not installed for this Python.")
    module = ".".join(settings.relative_to(ROOT).with_suffix("").parts)
    command = [
        sys.executable,
        "-m",
        "pytest",
        str(settings.parent / "cases.py"),
        f"--confcutdir={settings.parent}",
    ]
    command += ["-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist"]
    # not this run's own databases
    suffix = f"{os.environ.get('TEST_DATABASE_SUFFIX', '')}_{settings.parent.name}"
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": module,
        "PYTHONPATH": str(ROOT),
        "TEST_DATABASE_SUFFIX": suffix,
    }
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    shown = f"{done.stdout}\n{done.stderr}"
    assert done.returncode == 0, shown
    if not re.search(r"\d+ passed", shown):
        pytest.skip(shown.strip().splitlines()[-1])
