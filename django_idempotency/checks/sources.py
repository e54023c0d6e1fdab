"""The source of functions, as checks read it."""

from __future__ import annotations

import ast
import inspect
import linecache
from functools import lru_cache
from typing import Any


def tree_of(function: Any) -> ast.Module | None:
    """Return the syntax tree of a function; `None` if it has no source that can be read."""
    try:
        source = inspect.getsource(function)
        # An indented source stays as it is: the lines of a string in it may begin at column 0.
        return ast.parse(f"if 1:\n{source}" if source[0].isspace() else source)
    except Exception:  # noqa: BLE001 - a file that has changed, or a source too deep, raises almost anything
        return None


def may_mention(function: Any, word: str) -> bool:
    """Is a word in the file of a function? Each file is searched once: to find a function's own source takes longer."""
    try:
        file = inspect.getsourcefile(function)
    except TypeError:  # it is not Python's
        return False
    return file is not None and _is_in(word, file)


@lru_cache(maxsize=1024)
def _is_in(word: str, file: str) -> bool:
    return any(word in line for line in linecache.getlines(file))
