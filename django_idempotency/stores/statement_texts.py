"""What a statement of the work does, as far as its text tells: does it write, does it release a lock?"""

from __future__ import annotations

import re
from typing import Any

_WRITES = re.compile(
    r"(?:\s|\(|/\*(?:[^*]|\*(?!/))*\*/|--[^\n]*\n)*(?:INSERT|UPDATE|DELETE|REPLACE|MERGE)\b", re.IGNORECASE
)
#: The functions of PostgreSQL, MySQL and MariaDB that release locks which do not belong to a transaction.
_UNLOCKS = re.compile(r"\b(?:pg_advisory_unlock(?:_shared|_all)?|RELEASE_(?:ALL_LOCKS|LOCK))\s*\(", re.IGNORECASE)


def is_write(sql: Any, cursor: Any) -> bool:
    """Does a statement begin as one that writes? `sql` is what `cursor` takes: psycopg's also bytes, or what is composed."""
    return _WRITES.match(_text(sql, cursor)) is not None


def releases_lock(sql: Any, cursor: Any) -> bool:
    """Does a statement release an advisory lock that would outlast the transaction? `sql` and `cursor` as above."""
    return _UNLOCKS.search(_text(sql, cursor)) is not None


def _text(sql: Any, cursor: Any) -> str:
    if hasattr(sql, "as_string"):
        sql = sql.as_string(cursor.cursor)
    return sql.decode(errors="replace") if isinstance(sql, bytes) else str(sql)
