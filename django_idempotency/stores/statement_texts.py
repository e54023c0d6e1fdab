"""What a statement of the work does, as far as its text tells: does it write, does it take or release a lock?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

_GAP = r"(?:\s|\(|/\*(?:[^*]|\*(?!/))*\*/|--[^\n]*\n)*"
_WRITES = re.compile(rf"{_GAP}(?:INSERT|UPDATE|DELETE|REPLACE|MERGE)\b", re.IGNORECASE)
#: To a savepoint: a guard refuses any other.
_UNDOES = re.compile(rf"{_GAP}ROLLBACK\b", re.IGNORECASE)
_WITH = re.compile(rf"{_GAP}WITH\b", re.IGNORECASE)
#: In a statement that begins with WITH. FOR UPDATE only locks.
_WRITES_INSIDE = re.compile(
    r"\b(?:INSERT\s+INTO|DELETE\s+FROM|MERGE\s+INTO|UPDATE\s+\S+\s+(?:(?:AS\s+)?\w+\s+)?SET)\b", re.IGNORECASE
)
#: Releases one lock of the session on PostgreSQL.
_RELEASES_ONE = r"pg_advisory_unlock(?P<shared>_shared)?\s*\("
#: The functions of PostgreSQL, MySQL and MariaDB for locks that do not belong to a transaction.
_LOCKS = re.compile(
    rf"\b(?:(?P<takes>(?:pg_(?:try_)?advisory_lock(?:_shared)?|GET_LOCK)\s*\()"
    rf"|{_RELEASES_ONE}|(?:pg_advisory_unlock_all|RELEASE_ALL_LOCKS|RELEASE_LOCK)\s*\()",
    re.IGNORECASE,
)
_UNLOCK = re.compile(rf"\b{_RELEASES_ONE}", re.IGNORECASE)
#: Nothing else but that.
_ONLY_RELEASES = re.compile(rf"\s*SELECT\s+(?:pg_catalog\.)?{_RELEASES_ONE}[^()]*\)\s*;?\s*", re.IGNORECASE)
#: Characters at the beginning of a statement, in which such a function is looked for.
_BEGINNING = 400


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


def releases(text: str) -> bool:
    """Does a statement release a lock that does not belong to a transaction?"""
    found = _lock_in(text)
    return found is not None and found["takes"] is None


def only_releases(text: str) -> bool:
    """Does a statement of PostgreSQL do nothing else?"""
    return _ONLY_RELEASES.fullmatch(text) is not None


def _lock_in(text: str) -> re.Match[str] | None:
    beginning = text[:_BEGINNING]
    return _LOCKS.search(beginning) if "lock" in beginning.lower() else None


def kept_until_commit(text: str) -> str | None:
    """Return a statement that keeps a lock for the transaction, to be sent before PostgreSQL releases it for the session.

    It takes the same parameters, and returns whether that suffices: above READ COMMITTED, the next one to take the lock may
    have begun to read before. `None`: the statement is not a plain release of one lock.
    """
    if text.lstrip()[:6].upper() != "SELECT" or len(_LOCKS.findall(text)) != 1:
        return None
    kept, found = _UNLOCK.subn(_keeping, text)
    return kept if found else None


def _keeping(unlock: re.Match[str]) -> str:
    shared = (unlock["shared"] or "").lower()
    return f"current_setting('transaction_isolation') = 'read committed' AND pg_try_advisory_xact_lock{shared}("


class LockWatch:
    """Notices that the work releases an advisory lock of the database after it has written under it."""

    def __init__(self) -> None:
        self._locks = 0
        #: The savepoints in which the first write under the outermost lock was made; `None`: there is no such write.
        self._written_in: tuple[str, ...] | None = None

    def survives(self, savepoints: Sequence[str | None]) -> bool:
        """Does a lock that is taken now stay as long as the writes? It goes with a savepoint that they were not made in."""
        return set(filter(None, savepoints)) <= set(self._written_in or ())

    def note(self, text: str, savepoints: Sequence[str | None]) -> bool:
        """Note a statement, and the savepoints around it. Does it release what others must still wait for?"""
        found = _lock_in(text)
        if found is None:
            if self._written_in is None:
                self._written_in = tuple(filter(None, savepoints)) if is_write(text) else None
            elif _UNDOES.match(text) is not None and any(name in text[:_BEGINNING] for name in self._written_in):
                self._written_in = None  # with all that followed it
        elif found["takes"] is None:
            self._locks = max(self._locks - 1, 0)
            return self._written_in is not None
        else:
            if self._locks == 0:
                self._written_in = None  # what was written before is not under it
            self._locks += 1
        return False
