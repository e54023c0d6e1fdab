"""The environment of the suites, and their sources: built once, kept until a pin changes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterable

from .suites import HERE, Archive

ROOT = HERE.parents[2]
VENV = ROOT / ".venv-foreign"
PYTHON = VENV / "bin" / "python"
CACHE = ROOT / ".cache" / "foreign"
REQUIREMENTS = HERE / "requirements.txt"
_PIP = ("-m", "pip", "--disable-pip-version-check", "--quiet")
#: Variables of this run that must not reach the suites.
_OURS = ("DATABASE_URL", "DJANGO_SETTINGS_MODULE", "PYTEST_ADDOPTS", "PYTHONDEVMODE", "PYTHONPATH", "PYTHONWARNINGS")


class Unavailable(Exception):
    """What the suites need cannot be obtained."""


def inherited() -> dict[str, str]:
    """Return the environment of this process, without what is meant for it alone."""
    return {name: value for name, value in os.environ.items() if name not in _OURS}


def build(archives: Iterable[Archive], deadline: float) -> None:
    """Install what the suites need, this package and the sources. Raises `Unavailable` no later than the deadline."""
    CACHE.mkdir(parents=True, exist_ok=True)
    pins, built_with = REQUIREMENTS.read_text(encoding="utf-8"), VENV / "built-with.txt"
    if not built_with.exists() or built_with.read_text(encoding="utf-8") != pins:
        shutil.rmtree(VENV, ignore_errors=True)
        _call([sys.executable, "-m", "venv", str(VENV)], deadline, "The environment cannot be made")
        uv = shutil.which("uv")  # as in the Makefile: it takes a fifth of pip's time
        install = [uv, "pip", "install", "--quiet", "--python", str(PYTHON)] if uv else [str(PYTHON), *_PIP, "install"]
        _call([*install, "--requirement", str(REQUIREMENTS)], deadline, "The pins cannot be installed")
        built_with.write_text(pins, encoding="utf-8")
    ourselves = [str(PYTHON), *_PIP, "install", "--no-deps", "--no-build-isolation", "--force-reinstall", str(ROOT)]
    _call(ourselves, deadline, "This package cannot be installed")
    for archive in archives:
        _unpack(archive, deadline)


def _unpack(archive: Archive, deadline: float) -> None:
    folder = CACHE / archive.folder
    if not folder.exists():
        pin = CACHE / f"{archive.folder}.txt"
        pin.write_text(f"{archive.name}=={archive.version} --hash=sha256:{archive.sha256}\n", encoding="utf-8")
        download = ["download", "--no-deps", "--no-binary=:all:", "--dest", str(CACHE), "--requirement", str(pin)]
        _call(
            [str(PYTHON), *_PIP, *download], deadline, f"The sources of {archive.name} {archive.version} cannot be had"
        )
        (packed,) = (path for path in CACHE.glob("*.tar.gz") if path.name.replace("-", "_") == _file_name(archive))
        # Unpacked beside its place and then moved: half a folder is never mistaken for a whole one.
        with tarfile.open(packed) as tar:
            tar.extractall(CACHE / "unpacking", filter="data")
        next((CACHE / "unpacking").iterdir()).rename(folder)
    if archive.support is not None:
        ours, inside = archive.support
        for source in ours.glob("*.py"):
            shutil.copy(source, folder / inside)


def _file_name(archive: Archive) -> str:
    return f"{archive.folder}.tar.gz".replace("-", "_")


def _call(command: list[str], deadline: float, trouble: str) -> None:
    left = max(deadline - time.monotonic(), 0)
    try:
        done = subprocess.run(command, env=inherited(), capture_output=True, text=True, timeout=left, check=False)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{trouble} in time.") from None
    if done.returncode:
        raise Unavailable(f"{trouble}:\n{done.stdout}{done.stderr}".rstrip())
