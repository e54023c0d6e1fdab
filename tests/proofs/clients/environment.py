"""The environment of the official clients: pinned packages from PyPI and npm, installed again when a pin changes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from .clients import HERE, NODE

ROOT = HERE.parents[2]
VENV = ROOT / ".venv-clients"
PYTHON = VENV / "bin" / "python"
REQUIREMENTS = HERE / "requirements.txt"
PACKAGE = HERE / "package.json"
#: Seconds for one installation.
LIMIT = 480


class Unavailable(Exception):
    """What the clients need cannot be obtained."""


def build() -> None:
    """Install the pinned packages, unless they are there. Raises `Unavailable`."""
    if _outdated(VENV, REQUIREMENTS):
        shutil.rmtree(VENV, ignore_errors=True)
        _call([sys.executable, "-m", "venv", str(VENV)], "The environment cannot be made")
        uv = shutil.which("uv")  # as in the Makefile: it takes a fifth of pip's time
        pip = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
        install = [uv, "pip", "install", "--quiet", "--python", str(PYTHON)] if uv else pip
        _call([*install, "--requirement", str(REQUIREMENTS)], "The pinned clients cannot be installed")
        _note(VENV, REQUIREMENTS)
    if _outdated(NODE, PACKAGE):
        shutil.rmtree(NODE, ignore_errors=True)
        NODE.mkdir(parents=True)
        shutil.copy(PACKAGE, NODE)
        npm = shutil.which("npm")
        if npm is None or shutil.which("node") is None:
            raise Unavailable("Install Node.js with npm: one of the clients is for it.")
        install = [
            npm,
            "install",
            "--prefix",
            str(NODE),
            "--no-package-lock",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
        ]
        _call(install, "The pinned packages of npm cannot be installed")
        _note(NODE, PACKAGE)


def _outdated(folder: Path, pins: Path) -> bool:
    built_with = folder / "built-with.txt"
    return not built_with.exists() or built_with.read_text(encoding="utf-8") != pins.read_text(encoding="utf-8")


def _note(folder: Path, pins: Path) -> None:
    shutil.copy(pins, folder / "built-with.txt")


def _call(command: Sequence[str], trouble: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{trouble} in time.") from None
    if done.returncode:
        raise Unavailable(f"{trouble}:\n{done.stdout}{done.stderr}".rstrip())
