"""Environments of their own, for other people's programs: pinned packages, installed again when a
pin changes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PIP = ("-m", "pip", "--disable-pip-version-check", "--quiet")
#: Variables of this run that must not reach those programs.
_OURS = (
    "DATABASE_URL",
    "DJANGO_SETTINGS_MODULE",
    "PYTEST_ADDOPTS",
    "PYTHONDEVMODE",
    "PYTHONPATH",
    "PYTHONWARNINGS",
)


class Unavailable(Exception):
    """What a proof needs cannot be obtained."""


def inherited() -> dict[str, str]:
    """Return the environment of this process, without what is meant for it alone."""
    return {name: value for name, value in os.environ.items() if name not in _OURS}


def python_of(venv: Path) -> Path:
    """Return the interpreter of an environment."""
    return venv / "bin" / "python"


def install(venv: Path, requirements: Path, deadline: float) -> None:
    """Install pinned packages, unless they are there.

    Raises `Unavailable` no later than the deadline (`monotonic()`).
    """
    if not is_outdated(venv, requirements):
        return
    shutil.rmtree(venv, ignore_errors=True)
    call([sys.executable, "-m", "venv", str(venv)], deadline, "The environment cannot be made")
    python = str(python_of(venv))
    uv = shutil.which("uv")  # as in the Makefile: it takes a fifth of pip's time
    command = (
        [uv, "pip", "install", "--quiet", "--python", python] if uv else [python, *PIP, "install"]
    )
    call(
        [*command, "--requirement", str(requirements)],
        deadline,
        "The pinned packages cannot be installed",
    )
    note(venv, requirements)


def install_node(folder: Path, package: Path, deadline: float) -> None:
    """Install the packages of a package.json, unless they are there.

    Raises `Unavailable` as install() does.
    """
    if not is_outdated(folder, package):
        return
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise Unavailable(f"Install Node.js with npm: {package.relative_to(ROOT)} is for it.")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copy(package, folder)
    quietly = ["--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"]
    call(
        [npm, "install", "--prefix", str(folder), *quietly],
        deadline,
        "The packages of npm cannot be installed",
    )
    note(folder, package)


def is_outdated(folder: Path, pins: Path) -> bool:
    """Was the folder installed with other pins than those of today, or never?"""
    built_with = folder / "built-with.txt"
    return not built_with.exists() or built_with.read_text(encoding="utf-8") != pins.read_text(
        encoding="utf-8"
    )


def note(folder: Path, pins: Path) -> None:
    """Note that the folder is installed with these pins."""
    shutil.copy(pins, folder / "built-with.txt")


def of_project(settings: str, folder: str) -> dict[str, str]:
    """Return the environment of a project that is served on this machine, with its database in a
    folder.
    """
    return {
        **{
            name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")
        },
        "DJANGO_SETTINGS_MODULE": settings,
        "PROOF_DATABASE": f"{folder}/db.sqlite3",
        "PYTHONPATH": str(ROOT),
    }


def database() -> dict[str, Any]:
    """Return the entry of such a project in DATABASES: many threads write at once."""
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("PROOF_DATABASE", ":memory:"),
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL",
            "timeout": 20,
        },
    }


def call(command: Sequence[str], deadline: float, trouble: str) -> None:
    """Run a command that obtains something. Raises `Unavailable`, which begins with the trouble."""
    left = max(deadline - time.monotonic(), 0)
    try:
        done = subprocess.run(
            command, env=inherited(), capture_output=True, text=True, timeout=left, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{trouble} in time.") from None
    if done.returncode:
        raise Unavailable(f"{trouble}:\n{done.stdout}{done.stderr}".rstrip())
