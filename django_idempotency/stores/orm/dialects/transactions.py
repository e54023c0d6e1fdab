"""The work's own transaction, begun and committed in the same trips as the statements of its guard.

Django's `atomic()` sends BEGIN and COMMIT alone. Here BEGIN goes with the statement that locks the
record, and COMMIT with the one that settles it:

    PostgreSQL   BEGIN; SELECT … FOR UPDATE        the work        UPDATE …; COMMIT         one message each
    SQLite       SAVEPOINT, UPDATE …               the work        UPDATE …, RELEASE        no trips; see `sqlite`

To Django, and to the work, it is an `atomic()` block without another around it: its state on the
connection is the same, callbacks of `on_commit` run after COMMIT, and a rollback is Django's own.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from django.db import Error, transaction

from ....errors import TransactionLost

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.backends.utils import CursorWrapper


#: A statement and its parameters.
Bound = tuple[str, list[Any]]


class WorkTransaction:
    """A context manager for an outermost transaction on a connection in autocommit.

    Its exit commits, unless an error leaves it or the transaction is marked for rollback. It raises
    `TransactionLost` if the transaction is not the one that began here. With `settling` it also
    raises `OwnershipLost` if the statement updates no row, and `LostRace` or `StoreUnavailable` if
    it fails. In all four cases everything was rolled back, and so it was when the error of a failed
    COMMIT is raised, as it is. `OutcomeUnknown`: there was no response to COMMIT.
    """

    #: Prepares a cursor of the work before it executes a statement, if that is needed.
    adapt: Callable[[CursorWrapper], None] | None = None

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self.connection = connection
        self._atomic = transaction.atomic(using=connection.alias)
        #: Settles the record when the transaction is committed: it must update one row.
        self.settling: Bound | None = None
        #: The project's wrappers, which do not see COMMIT.
        self._wrappers: list[Any] | None = None

    def __enter__(self) -> None:
        connection = self.connection
        connection.close_if_health_check_failed()
        connection.ensure_connection()  # a new connection would reset what follows
        connection.commit_on_exit = True
        connection.needs_rollback = False
        connection.autocommit = False
        connection.in_atomic_block = True
        connection.atomic_blocks.append(self._atomic)

    def lock(self, bound: Bound) -> tuple[Any, ...] | None:
        """Begin the transaction with the statement that locks the record, and return its row."""
        raise NotImplementedError

    def is_ours(self) -> bool:
        """Is this still the transaction that began here?

        Asked before a rollback; a commit finds out by itself.
        """
        raise NotImplementedError

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        connection = self.connection
        replaced = not connection.in_atomic_block  # by a new connection of the work
        if (
            kind is not None
            or connection.needs_rollback
            or connection.closed_in_transaction
            or replaced
        ):
            self._atomic.__exit__(kind, error, trace)
            if replaced and kind is None and self.settling is not None:
                raise TransactionLost
            return
        connection.atomic_blocks.pop()
        connection.in_atomic_block = False
        # As Django's own COMMIT: no wrapper of the project sees it, or raises when it is done.
        wrappers = self._wrappers = connection.execute_wrappers
        connection.execute_wrappers = []
        is_over = False
        try:
            self._commit()
            connection.errors_occurred = False
            connection.run_commit_hooks_on_set_autocommit_on = True
            is_over = True
        except BaseException:
            try:
                connection.rollback()
            except Error:
                connection.close()
            is_over = True
            raise
        finally:
            # Otherwise an interrupt has cut the rollback, and this might commit: see restore().
            if is_over:
                connection.execute_wrappers = wrappers
                connection.set_autocommit(True)

    def restore(self) -> None:
        """Give the connection the project's wrappers back, if an interrupt has cut the end.

        Its transaction stays as it is.
        """
        if self._wrappers is not None:
            self.connection.execute_wrappers = self._wrappers

    def _commit(self) -> None:
        """Settle, if there is a statement for it, and commit. Raises what the class says."""
        raise NotImplementedError
