"""Environments of the bench's own, under .cache/: what it is compared with must not decide what we
run on.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = Path(__file__).resolve().parent / "requirements"
CACHE = ROOT / ".cache" / "benchmarks"


class Unavailable(Exception):
    """An environment cannot be built: what pip said."""


def built(name: str) -> Path:
    """Return the folder of an environment's commands; it is built if its requirements have changed.

    Raises `Unavailable`.
    """
    pins = (REQUIREMENTS / f"{name}.txt").read_text(encoding="utf-8")
    folder, commands = CACHE / name, CACHE / name / "bin"
    built_with = folder / "built-with.txt"
    if not built_with.exists() or built_with.read_text(encoding="utf-8") != pins:
        shutil.rmtree(folder, ignore_errors=True)
        call([sys.executable, "-m", "venv", str(folder)])
        # As in the Makefile: it takes a fifth of pip's time.
        python, uv = (
            str(commands / "python"),
            shutil.which("uv"),
        )
        install = (
            [uv, "pip", "install", "--python", python] if uv else [python, "-m", "pip", "install"]
        )
        call([*install, "--quiet", "--requirement", str(REQUIREMENTS / f"{name}.txt")])
        built_with.write_text(pins, encoding="utf-8")
    return commands


def is_built(name: str) -> bool:
    """Was the environment built, with whatever requirements?"""
    return (CACHE / name / "built-with.txt").exists()


def call(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(done.stderr.strip() or done.stdout.strip())
