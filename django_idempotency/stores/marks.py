"""Who has marked a connection's transaction for rollback, or ended it: the project by its word, or
an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django.db import Error
from django.db.transaction import TransactionManagementError

from ..core.conclusions import Rollback

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

#: The drivers' number for a transaction in which a statement has failed, so that only a rollback is
#: possible.
IN_ERROR = 3


def is_aborted(connection: BaseDatabaseWrapper) -> bool:
    """Has a failed statement aborted the transaction?

    Django would send a COMMIT, which PostgreSQL makes a ROLLBACK.
    """
    info = getattr(connection.connection, "info", None)
    return getattr(info, "transaction_status", None) == IN_ERROR


def given_up(error: BaseException) -> TransactionManagementError:
    """Return what a statement raises after the database has rolled the transaction back, as Django
    says where it is marked.
    """
    raised = TransactionManagementError(
        "The database has rolled back this transaction for an error, so no further "
        "statement is executed in it."
    )
    raised.__cause__ = error
    return raised


class RollbackMarks:
    """Hears `transaction.set_rollback()` on one connection, between `listen()` and `leave()`.

    A mark that was not set by that call is an error's: Django sets it for an exception that leaves
    an atomic() block. An error may also end the transaction in the database, such as a deadlock,
    and Django marks nothing.
    """

    #: Did the project set the mark that is there, before any error did?
    asked = False
    #: Is no statement executed any more once the database has rolled the transaction back? Not
    #: where no request is guarded: Django itself goes on then.
    refuses = False
    #: The error that the work has met, if it is not undone; `None`: Django has seen none.
    error: BaseException | None = None
    _connection: BaseDatabaseWrapper
    #: The error for which the database has rolled the transaction back, or (InnoDB's lock wait
    #: timeout) may have.
    _given_up: Error | None = None
    _raced: Error | None = None
    #: What heard it before, such as the guard of a caller.
    _heard_before: Callable[[bool], None] | None = None

    def listen(self, connection: BaseDatabaseWrapper) -> None:
        self._connection = connection
        self._heard_before = vars(connection).get("set_rollback")
        connection.set_rollback = self._hear  # type: ignore[method-assign]
        connection.execute_wrappers.append(self._watch_statement)

    def leave(self) -> None:
        if self._watch_statement in self._connection.execute_wrappers:
            self._connection.execute_wrappers.remove(self._watch_statement)
        if vars(self._connection).get("set_rollback") != self._hear:
            return  # it was cut before it heard, or after
        if self._heard_before is None:
            vars(self._connection).pop("set_rollback", None)
        else:
            self._connection.set_rollback = self._heard_before  # type: ignore[method-assign, assignment]

    def restore(self) -> None:
        """Leave it if it still hears, wherever an interrupt has come."""
        if not hasattr(self, "_connection"):
            return
        hears = vars(self._connection).get("set_rollback") == self._hear
        if hears or self._watch_statement in self._connection.execute_wrappers:
            self.leave()

    def _hear(self, rollback: bool) -> None:
        connection: Any = self._connection
        asked = rollback and (self.asked or not connection.needs_rollback)
        if self._heard_before is None:
            type(connection).set_rollback(connection, rollback)
        else:
            self._heard_before(rollback)
        self.asked = asked

    def _watch_statement(
        self, execute: Any, sql: Any, params: Any, many: bool, context: Any
    ) -> Any:
        connection = self._connection
        if self._given_up is not None and self.refuses:
            raise given_up(self._given_up)
        aborted = is_aborted(connection)
        if not aborted and not connection.needs_rollback:
            # A savepoint has undone what was marked, or broken.
            self.asked = False
            self.error = None
        try:
            return execute(sql, params, many, context)
        except Error as error:
            from .orm import database_errors  # not above: that package imports this module

            if self.error is None or not aborted:
                self.error = error
            if database_errors.deadlocked(error) or _left_by_sqlite(connection):
                self._given_up = error
            elif database_errors.timed_out(error):
                self._raced = error
            raise

    def cause(self) -> Rollback:
        """Say why the transaction will be rolled back, or has been. May ask the database."""
        if (
            self._given_up is None
            and self._raced is not None
            and _rolls_back_on_timeout(self._connection)
        ):
            self._given_up = self._raced
        if self._given_up is not None:
            self.error = self._given_up
            return Rollback.ERROR
        if is_aborted(self._connection):
            return Rollback.ERROR
        if not self._connection.needs_rollback:
            return Rollback.NONE
        return Rollback.ASKED if self.asked else Rollback.ERROR


def _left_by_sqlite(connection: BaseDatabaseWrapper) -> bool:
    """Has SQLite ended the transaction, as it does for OR ROLLBACK?"""
    return connection.vendor == "sqlite" and not getattr(
        connection.connection, "in_transaction", True
    )


def _rolls_back_on_timeout(connection: BaseDatabaseWrapper) -> bool:
    """Does InnoDB roll back the whole transaction for a lock wait timeout? In doubt it does."""
    try:
        # The driver's: Django refuses one in a marked transaction.
        with connection.connection.cursor() as cursor:
            cursor.execute("SELECT @@innodb_rollback_on_timeout")
            return bool(cursor.fetchone()[0])
    except Exception:  # noqa: BLE001 - any driver's error
        return True
