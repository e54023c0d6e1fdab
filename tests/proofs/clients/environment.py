"""The environment of the official clients: pinned packages from PyPI and npm."""

from __future__ import annotations

import time

from ..environments import ROOT, install, install_node, python_of
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
    install_node(NODE, PACKAGE, deadline)
