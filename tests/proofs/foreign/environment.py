"""The environment of the suites, and their sources: built once, kept until a pin changes."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Iterable

from ..environments import PIP, ROOT, call, install, python_of
from .suites import HERE, Archive

VENV = ROOT / ".venv-foreign"
PYTHON = python_of(VENV)
CACHE = ROOT / ".cache" / "foreign"
REQUIREMENTS = HERE / "requirements.txt"


def build(archives: Iterable[Archive], deadline: float) -> None:
    """Install what the suites need, this package and the sources.

    Raises `Unavailable` no later than the deadline.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    install(VENV, REQUIREMENTS, deadline)
    ourselves = [
        str(PYTHON),
        *PIP,
        "install",
        "--no-deps",
        "--no-build-isolation",
        "--force-reinstall",
        str(ROOT),
    ]
    call(ourselves, deadline, "This package cannot be installed")
    for archive in archives:
        _unpack(archive, deadline)


def _unpack(archive: Archive, deadline: float) -> None:
    folder = CACHE / archive.folder
    if not folder.exists():
        pin = CACHE / f"{archive.folder}.txt"
        pin.write_text(
            f"{archive.name}=={archive.version} --hash=sha256:{archive.sha256}\n", encoding="utf-8"
        )
        download = [
            "download",
            "--no-deps",
            "--no-binary=:all:",
            "--dest",
            str(CACHE),
            "--requirement",
            str(pin),
        ]
        call(
            [str(PYTHON), *PIP, *download],
            deadline,
            f"The sources of {archive.name} {archive.version} cannot be had",
        )
        (packed,) = (
            path
            for path in CACHE.glob("*.tar.gz")
            if path.name.replace("-", "_") == _file_name(archive)
        )
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
