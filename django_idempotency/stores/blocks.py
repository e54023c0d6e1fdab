"""A request's transaction that was opened before the request was known to be guarded.

Its guard takes it over.

DRF authenticates and checks permissions inside the transaction of ATOMIC_REQUESTS. The owner of the
key is known only after that. Rows locked by then must stay locked, so the guard cannot begin a
transaction of its own:

    BEGIN ─ permissions ─ claim ─ lock row ─ handler ─ store response ─ COMMIT

The claim joins that transaction: a duplicate waits for it, for at most a second, and a crash leaves
no trace of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from types import TracebackType
from typing import Any, NamedTuple

from django.db import Error, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from ..core.conclusions import Rollback
from .base import Guard
from .marks import RollbackMarks


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


def drop_if_cut(connection: BaseDatabaseWrapper) -> None:
    """Close a connection outside a transaction if an interrupt has cut a statement on it: no other
    could be executed.

    The drivers of MariaDB and MySQL do not say whether one was cut, so theirs is closed in any
    case.
    """
    if not connection.in_atomic_block and (connection.vendor == "mysql" or _is_open(connection)):
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


class Block:
    """The transaction on one database. Its own context ends it, unless a guard has taken it
    over.
    """

    def __init__(self, using: str, *, noted: bool) -> None:
        self.using = using
        self._noted = noted
        self._atomic: Any = None
        connection = connections[using]
        #: Is it inside another one, such as a test case's? Then it is a savepoint.
        self.joined = connection.in_atomic_block
        self._before = Before(
            connection, self.joined, len(connection.atomic_blocks), len(connection.savepoint_ids)
        )
        #: Has a guard taken it over? Then the guard ends it, and not its own context.
        self.taken = False
        #: Are its writes committed? Known only if `noted`, or after take().
        self.committed = False
        #: Why it was rolled back, although nothing was raised.
        self.undone = Rollback.NONE
        #: The error behind that, if Django has seen it.
        self.error: BaseException | None = None
        self._marks = RollbackMarks()
        self._heard: Callable[[], None] | None = None

    def __enter__(self) -> None:
        atomic = transaction.atomic(using=self.using)
        atomic.__enter__()
        self._atomic = atomic
        self._marks.listen(connections[self.using])
        if self._noted:  # first: if a callback fails, those after it do not run
            transaction.on_commit(self._note, using=self.using)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self.taken:
            self._end(kind, error, trace)

    def _end(self, *raised: Any) -> None:
        atomic = self._atomic
        self._atomic = None
        if atomic is None:
            return
        self._marks.leave()
        if raised[0] is None:
            self.undone = self._marks.cause()
            self.error = self._marks.error
        atomic.__exit__(*raised)

    def guard(self) -> None:
        """Note that the request is guarded: what follows an error that undoes its writes must not
        be committed alone.
        """
        self._marks.refuses = True

    def restore(self) -> None:
        """Leave nothing of it behind, wherever an interrupt has cut its end.

        Does nothing to one that a guard ends.
        """
        if not self.taken:
            self.drop()

    def drop(self) -> None:
        """Leave nothing of it behind, whoever should have ended it: the request is over."""
        self._marks.restore()
        self._before.restore()

    def _note(self) -> None:
        self.committed = True
        if self._heard is not None:
            self._heard()

    def is_made_by(self, atomic: object) -> bool:
        """Is `atomic` the object that Django's connection has for this block?"""
        return atomic is self._atomic

    def room(self, *, leases: bool) -> AbstractContextManager[None]:
        """Return the context in which a claim is made in a store whose rows are on this database.

        A lease's claim must be committed before this transaction ends, so what this transaction has
        written so far is committed. Inside an outer transaction the claim joins: a rollback there
        undoes both.
        """
        return self._paused() if leases and not self.joined else self._offered()

    @contextmanager
    def _offered(self) -> Iterator[None]:
        token = OFFERED.set(self)
        try:
            yield
        finally:
            OFFERED.reset(token)

    @contextmanager
    def _paused(self) -> Iterator[None]:
        self._end(None, None, None)
        try:
            yield
        finally:
            self.committed = False
            self.__enter__()

    def take(self, heard: Callable[[], None]) -> None:
        """Let a guard end this transaction. `heard` is called after COMMIT."""
        if not self._noted:
            transaction.on_commit(self._note, using=self.using)
        self.taken, self._heard = True, heard

    @contextmanager
    def taken_over(self) -> Iterator[None]:
        """End the transaction with this context, if a guard has taken it over by then."""
        try:
            yield
        except BaseException as error:
            if self.taken:
                self._end(type(error), error, error.__traceback__)
            raise
        if self.taken:
            self._end(None, None, None)


OFFERED: ContextVar[Block | None] = ContextVar("django_idempotency_offered", default=None)


def offered(using: str) -> Block | None:
    """Return the block that a guard on the database `using` may take over, or `None`."""
    block = OFFERED.get()
    return block if block is not None and block.using == using and not block.taken else None


def in_transaction(connection: BaseDatabaseWrapper, *, ours: Sequence[Block] = ()) -> bool:
    """Is a transaction open that is neither a test's nor one of `ours`?

    `atomic(durable=True)` looks at the same.
    """
    blocks: Sequence[Any] = connection.atomic_blocks
    return any(
        isinstance(block, Guard)
        or (
            not getattr(block, "_from_testcase", False)
            and not any(own.is_made_by(block) for own in ours)
        )
        for block in blocks
    )
