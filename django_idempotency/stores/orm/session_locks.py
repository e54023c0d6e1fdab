"""Locks of the database's session that the work releases before the guard's COMMIT: kept until then, or refused."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from django.db import Error

from ...errors import UnlockedTooEarly
from ..statement_texts import LockWatch, kept_until_commit, only_releases, releases, text_of

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

logger = logging.getLogger("django_idempotency")


class SessionLocks:
    """Runs the statements of the work of one guard, and sees to the locks that they release."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self._connection = connection
        self._watch = LockWatch()
        #: Was a lock released that was to be kept? Then nothing of the work may be, even if it has handled the error.
        self.released_early = False
        #: Releases that the aborted transaction has refused: text, parameters, executemany().
        self._refused: list[tuple[str, Any, bool]] = []

    def run(self, execute: Any, sql: str, params: Any, many: bool, context: Any, *, aborted: bool) -> Any:
        """Run a statement. `aborted`: an earlier one has aborted the transaction. Raises `UnlockedTooEarly`."""
        text, savepoints = text_of(sql, context["cursor"]), self._connection.savepoint_ids
        too_early = self._watch.note(text, savepoints)
        try:
            if too_early and self._watch.survives(savepoints):
                too_early = not _keeps_lock(execute, text, params, context)
            done = execute(sql, params, many, context)
        except Error:
            if aborted and releases(text):
                self._refused.append((text, params, many))
            raise
        if (text, params, many) in self._refused:  # the work has sent it again
            self._refused.remove((text, params, many))
        if too_early:  # it had to run: otherwise the connection would keep the lock
            self.released_early = True
            logger.error("%s", UnlockedTooEarly())
            raise UnlockedTooEarly
        return done

    def release_refused(self) -> None:
        """Release, after the rollback, the locks that the work could not release: the connection would keep them.

        What is more than a plain release is not repeated: all locks go with the connection's session.
        """
        refused, self._refused = self._refused, []
        if not refused:
            return
        try:
            if any(many or not only_releases(text) for text, _, many in refused):
                self._connection.close()
                return
            with self._connection.cursor() as cursor:
                for text, params, _ in refused:
                    cursor.execute(text, params)
        except Exception:  # noqa: BLE001 - what ended the work is raised
            self._connection.close()


def _keeps_lock(execute: Any, text: str, params: Any, context: Any) -> bool:
    """Keep a lock until the COMMIT, although the work is about to release it. `False`: that cannot be done here."""
    if (kept := kept_until_commit(text)) is None:
        return False
    execute(kept, params, False, context)
    return bool(context["cursor"].fetchone()[0])
