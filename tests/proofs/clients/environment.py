"""The environment of the official clients: pinned packages from PyPI and npm."""

from __future__ import annotations

import shutil
import time

from ..environments import ROOT, Unavailable, call, install, is_outdated, note, python_of
from .clients import HERE, NODE

VENV = ROOT / ".venv-clients"
PYTHON = python_of(VENV)
REQUIREMENTS = HERE / "requirements.txt"
PACKAGE = HERE / "package.json"
#: Seconds for both installations.
LIMIT = 960


def build() -> None:
    """Install the pinned packages, unless they are there. Raises `Unavailable`."""
    deadline = time.monotonic() + LIMIT
    install(VENV, REQUIREMENTS, deadline)
    if is_outdated(NODE, PACKAGE):
        shutil.rmtree(NODE, ignore_errors=True)
        NODE.mkdir(parents=True)
        shutil.copy(PACKAGE, NODE)
        npm = shutil.which("npm")
        if npm is None or shutil.which("node") is None:
            raise Unavailable("Install Node.js with npm: one of the clients is for it.")
        quietly = ["--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"]
        call(
            [npm, "install", "--prefix", str(NODE), *quietly],
            deadline,
            "The pinned packages of npm cannot be installed",
        )
        note(NODE, PACKAGE)
