"""A request's transaction that was opened before the request was known to be guarded. Its guard takes it over.

DRF authenticates and checks permissions inside the transaction of ATOMIC_REQUESTS. The owner of the key is known only
after that. Rows locked by then must stay locked, so the guard cannot begin a transaction of its own:

    BEGIN ─ permissions ─ claim ─ lock row ─ handler ─ store response ─ COMMIT

The claim joins that transaction: a duplicate waits for it, for at most a second, and a crash leaves no trace of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from ..core.conclusions import Rollback
from .base import Guard
from .marks import RollbackMarks


class Block:
    """The transaction on one database. Its own context ends it, unless a guard has taken it over."""

    def __init__(self, using: str, *, noted: bool) -> None:
        self.using = using
        self._noted = noted
        self._atomic: Any = None
        #: Is it inside another one, such as a test case's? Then it is a savepoint.
        self.joined = False
        #: Has a guard taken it over? Then the guard ends it, and not its own context.
        self.taken = False
        #: Are its writes committed? Known only if `noted`, or after take().
        self.committed = False
        #: Why it was rolled back, although nothing was raised.
        self.undone = Rollback.NONE
        self._marks = RollbackMarks()
        self._heard: Callable[[], None] | None = None

    def __enter__(self) -> None:
        self.joined = connections[self.using].in_atomic_block
        atomic = transaction.atomic(using=self.using)
        atomic.__enter__()
        self._atomic = atomic
        self._marks.listen(connections[self.using])
        if self._noted:  # first: if a callback fails, those after it do not run
            transaction.on_commit(self._note, using=self.using)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
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
        atomic.__exit__(*raised)

    def _note(self) -> None:
        self.committed = True
        if self._heard is not None:
            self._heard()

    def is_made_by(self, atomic: object) -> bool:
        """Is `atomic` the object that Django's connection has for this block?"""
        return atomic is self._atomic

    def room(self, *, leases: bool) -> AbstractContextManager[None]:
        """Return the context in which a claim is made in a store whose rows are on this database.

        A lease's claim must be committed before this transaction ends, so what this transaction has written so far is
        committed. Inside an outer transaction the claim joins: a rollback there undoes both.
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
    """Is a transaction open that is neither a test's nor one of `ours`? `atomic(durable=True)` looks at the same."""
    blocks: Sequence[Any] = connection.atomic_blocks
    return any(
        isinstance(block, Guard)
        or (not getattr(block, "_from_testcase", False) and not any(own.is_made_by(block) for own in ours))
        for block in blocks
    )
