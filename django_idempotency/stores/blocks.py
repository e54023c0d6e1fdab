"""The transaction of a request that was open before it was known to be guarded: its guard takes it over.

DRF authenticates and checks permissions inside the transaction of ATOMIC_REQUESTS, and only then is the owner of the key
known. Rows locked by then must stay locked, so the guard cannot begin a transaction of its own:

    BEGIN ─ permissions ──── lock row ─ handler ─ store response ─ COMMIT
                        └─ claim ─ commit, over a second connection

The claim is committed at once, as usual, if a second connection can do that (see `beside`). Otherwise it joins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any

from django.db import Error, connections, transaction

from ..errors import StoreUnavailable
from .beside import beside

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


class Block:
    """The transaction on one database. Its own context ends it, unless a guard has taken it over."""

    def __init__(self, using: str, *, noted: bool) -> None:
        self.using = using
        self._noted = noted
        self._atomic: Any = None
        #: Is it inside another one, such as a test case's? Then it is a savepoint.
        self.joined = False
        #: Has a guard taken it over, which ends it in place of its context?
        self.taken = False
        #: Are its writes committed? Known only where that is noted.
        self.committed = False
        self._heard: Callable[[], None] | None = None
        #: The second connection that claims for it.
        self.beside: BaseDatabaseWrapper | None = None

    def __enter__(self) -> None:
        self.joined = connections[self.using].in_atomic_block
        atomic = transaction.atomic(using=self.using)
        atomic.__enter__()
        self._atomic = atomic
        if self._noted:  # first, since a callback that fails takes the rest along
            transaction.on_commit(self._note, using=self.using)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.taken:
            self._end(kind, error, trace)

    def _end(self, *raised: Any) -> None:
        atomic, self._atomic = self._atomic, None
        if atomic is not None:
            atomic.__exit__(*raised)

    def _note(self) -> None:
        self.committed = True
        if self._heard is not None:
            self._heard()

    def is_made_by(self, atomic: object) -> bool:
        """Is this the `atomic` block that Django's connection knows it as?"""
        return atomic is self._atomic

    def room(self, *, leases: bool) -> AbstractContextManager[None]:
        """Return the context in which a claim is made.

        The claim of a lease must not wait for this transaction: without a second connection, what it wrote so far is
        committed. In another's transaction both are forgotten together, so there the claim joins.
        """
        try:
            self.beside = None if self.joined else beside(connections[self.using])
        except Error as error:
            raise StoreUnavailable from error
        return self._paused() if leases and self.beside is None and not self.joined else self._offered()

    @contextmanager
    def _offered(self) -> Iterator[None]:
        token = _OFFERED.set(self)
        try:
            yield
        finally:
            _OFFERED.reset(token)

    @contextmanager
    def _paused(self) -> Iterator[None]:
        self._end(None, None, None)
        try:
            yield
        finally:
            self.committed = False
            self.__enter__()

    def take(self, heard: Callable[[], None]) -> None:
        """Leave the end to a guard, which is called after COMMIT."""
        if not self._noted:
            transaction.on_commit(self._note, using=self.using)
        self.taken, self._heard = True, heard

    @contextmanager
    def taken_over(self) -> Iterator[None]:
        """End it with this context, if a guard has taken it by then."""
        try:
            yield
        except BaseException as error:
            if self.taken:
                self._end(type(error), error, error.__traceback__)
            raise
        if self.taken:
            self._end(None, None, None)


_OFFERED: ContextVar[Block | None] = ContextVar("django_idempotency_offered", default=None)


def offered(using: str) -> Block | None:
    """Return the block that a guard on a database may take over."""
    block = _OFFERED.get()
    return block if block is not None and block.using == using and not block.taken else None
