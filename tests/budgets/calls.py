"""Counts calls of the package's functions, files entered, and how often a call changes the file.

Times nothing.
"""

from __future__ import annotations

import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

PACKAGE = Path(__file__).resolve().parents[2] / "django_idempotency"
#: Python 3.12 inlines them.
INLINED = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>"})


class Calls:
    """The calls made while it is entered; resuming a generator is one."""

    def __init__(self) -> None:
        self.entered: list[str] = []

    def __enter__(self) -> None:
        sys.setprofile(self._note)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        if (
            event == "call"
            and code.co_filename.startswith(f"{PACKAGE}/")
            and code.co_name not in INLINED
        ):
            self.entered.append(code.co_filename.removeprefix(f"{PACKAGE}/"))

    def figures(self) -> dict[str, Any]:
        files = self.entered
        return {
            "files": len(set(files)),
            "calls": len(files),
            "changes": sum(one != other for one, other in pairwise(files)),
            "most": [f"{count} in {file}" for file, count in Counter(files).most_common(8)],
        }


def loaded() -> list[str]:
    """Return the package's modules that are loaded."""
    return sorted(name for name in sys.modules if name.partition(".")[0] == PACKAGE.name)
