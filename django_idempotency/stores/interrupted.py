"""What a time limit has cut on a database connection, and how nothing of a call stays open on it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db import Error
from django.db.transaction import TransactionManagementError

from ..errors import IdempotencyError
from .base import Guard

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


class Before(NamedTuple):
    """What was open on a connection before a call of ours, so that an interrupt leaves nothing of
    the call behind.

    A time limit may raise at any line, also between a change of the connection and what undoes it.
    """

    connection: BaseDatabaseWrapper
    in_atomic_block: bool
    blocks: int
    savepoints: int

    def restore(self) -> None:
        """Make the connection as it was.

        Does nothing if it is so, and may be called any number of times.

        A transaction that the call has left open is rolled back by closing its connection, since
        nobody knows what the interrupt has cut. A caller's transaction is marked for rollback
        instead, and the caller ends it.
        """
        connection = self.connection
        if not self.in_atomic_block:
            if _is_open(connection):
                drop(connection)
        elif (
            len(connection.atomic_blocks) > self.blocks
            or len(connection.savepoint_ids) > self.savepoints
        ):
            del connection.atomic_blocks[self.blocks :]
            del connection.savepoint_ids[self.savepoints :]
            connection.needs_rollback = True


def drop(connection: BaseDatabaseWrapper) -> None:
    """Close a connection whatever is open on it: its server rolls that back.

    The next statement connects anew.
    """
    connection.in_atomic_block = (
        False  # otherwise it would stay until the end of a block that nobody ends
    )
    connection.closed_in_transaction = False
    connection.needs_rollback = False
    connection.run_commit_hooks_on_set_autocommit_on = False
    connection.atomic_blocks.clear()
    connection.savepoint_ids.clear()
    with suppress(Error):
        connection.close()
    if connection.connection is not None:  # SQLite in memory, which Django leaves open
        connection.rollback()
        connection.set_autocommit(True)


def drop_if_cut(connection: BaseDatabaseWrapper, error: BaseException) -> None:
    """Close a connection if `error` is an interrupt, which may have cut a statement of ours.

    Another statement would read the rest of its response, or wait for one without end. The drivers
    of MariaDB and MySQL do not say whether one was cut, so theirs is closed in any case. In a
    transaction, Django then sends nothing until its outermost block ends, and that is rolled back.
    Drivers of other databases refuse the next statement there.
    """
    # A generator that an interrupt has left behind ends when nobody knows of it any more.
    if isinstance(error, (Error, IdempotencyError, GeneratorExit)):
        return
    if connection.in_atomic_block:
        if connection.vendor == "mysql":
            with suppress(Error):
                connection.close()
    elif connection.vendor == "mysql" or _is_open(connection):
        drop(connection)


def _is_open(connection: BaseDatabaseWrapper) -> bool:
    """Has a connection an open transaction, or what remains of one?

    Nothing is asked of its server.
    """
    if connection.in_atomic_block or connection.run_on_commit:
        return True
    driver: Any = connection.connection
    if driver is None:
        return False
    if connection.autocommit != connection.settings_dict["AUTOCOMMIT"] or getattr(
        driver, "in_transaction", False
    ):
        return True
    status = getattr(getattr(driver, "info", None), "transaction_status", None)
    return status is not None and int(status) != 0


def in_transaction(connection: BaseDatabaseWrapper) -> bool:
    """Is a transaction open that is not a test's? `atomic(durable=True)` looks at the same."""
    blocks: Sequence[Any] = connection.atomic_blocks
    return any(
        isinstance(block, Guard) or not getattr(block, "_from_testcase", False) for block in blocks
    )


#: libpq's number for a transaction in which a statement has failed; psycopg 3 and 2 pass it on.
IN_ERROR = 3


def is_aborted(connection: BaseDatabaseWrapper) -> bool:
    """Has a failed statement aborted the transaction, so that its COMMIT would be a ROLLBACK?"""
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
