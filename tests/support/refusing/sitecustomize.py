"""Refuses the modules that REFUSED_MODULES names.

Python imports this at its start, if this folder is in PYTHONPATH.
"""

from __future__ import annotations

import os
import sys
from importlib.abc import MetaPathFinder
from typing import Any


class Refusing(MetaPathFinder):
    """Finds nothing, and lets nothing else find what is refused."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def find_spec(self, name: str, path: Any, target: Any = None) -> None:
        if name.partition(".")[0] in self._names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Refusing(frozenset(os.environ.get("REFUSED_MODULES", "").split())))
