"""Does a statement of the work write, as far as its text tells?"""

from __future__ import annotations

import re
from typing import Any

_GAP = r"(?:\s|\(|/\*(?:[^*]|\*(?!/))*\*/|--[^\n]*\n)*"
_WRITES = re.compile(rf"{_GAP}(?:INSERT|UPDATE|DELETE|REPLACE|MERGE)\b", re.IGNORECASE)
_WITH = re.compile(rf"{_GAP}WITH\b", re.IGNORECASE)
#: In a statement that begins with WITH. FOR UPDATE only locks.
_WRITES_INSIDE = re.compile(
    r"\b(?:INSERT\s+INTO|DELETE\s+FROM|MERGE\s+INTO|UPDATE\s+\S+\s+(?:(?:AS\s+)?\w+\s+)?SET)\b", re.IGNORECASE
)


def text_of(sql: Any, cursor: Any) -> str:
    """Return a statement as text. `sql` is what `cursor` takes: psycopg's also bytes, or what is composed."""
    if hasattr(sql, "as_string"):
        sql = sql.as_string(cursor.cursor)
    return sql.decode(errors="replace") if isinstance(sql, bytes) else str(sql)


def is_write(text: str) -> bool:
    """Does a statement write?"""
    if _WRITES.match(text) is not None:
        return True
    return _WITH.match(text) is not None and _WRITES_INSIDE.search(text) is not None
