"""Who has marked a connection's transaction for rollback: the project by its word, or an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..core.conclusions import Rollback

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

#: The drivers' number for a transaction in which a statement has failed, so that only a rollback is possible.
IN_ERROR = 3


def is_aborted(connection: BaseDatabaseWrapper) -> bool:
    """Has a failed statement aborted the transaction? Django would send a COMMIT, which PostgreSQL makes a ROLLBACK."""
    info = getattr(connection.connection, "info", None)
    return getattr(info, "transaction_status", None) == IN_ERROR


class RollbackMarks:
    """Hears `transaction.set_rollback()` on one connection, between `listen()` and `leave()`.

    A mark that was not set by that call is an error's: Django sets it for an exception that leaves an atomic() block.
    """

    #: Did the project set the mark that is there, before any error did?
    asked = False
    _connection: BaseDatabaseWrapper
    #: What heard it before, such as the guard of a caller.
    _heard_before: Callable[[bool], None] | None = None

    def listen(self, connection: BaseDatabaseWrapper) -> None:
        self._connection = connection
        self._heard_before = vars(connection).get("set_rollback")
        connection.set_rollback = self._hear  # type: ignore[method-assign]

    def leave(self) -> None:
        if self._heard_before is None:
            vars(self._connection).pop("set_rollback", None)
        else:
            self._connection.set_rollback = self._heard_before  # type: ignore[method-assign, assignment]

    def restore(self) -> None:
        """Leave it if it still hears, wherever an interrupt has come."""
        if hasattr(self, "_connection") and vars(self._connection).get("set_rollback") == self._hear:
            self.leave()

    def _hear(self, rollback: bool) -> None:
        connection: Any = self._connection
        asked = rollback and (self.asked or not connection.needs_rollback)
        if self._heard_before is None:
            type(connection).set_rollback(connection, rollback)
        else:
            self._heard_before(rollback)
        self.asked = asked

    def cause(self) -> Rollback:
        """Say why the transaction is marked."""
        if is_aborted(self._connection):
            return Rollback.ERROR
        if not self._connection.needs_rollback:
            return Rollback.NONE
        return Rollback.ASKED if self.asked else Rollback.ERROR
