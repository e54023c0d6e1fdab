"""The guard of `atomic`: it holds the record's lock in the transaction of the work, and knows that transaction again."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django.db import Error, transaction

from ...errors import DurableInsideGuard, ImplicitCommit, StoreUnavailable, TransactionLost
from ..base import Guard
from ..blocks import Block
from . import database_errors
from .dialects.base import IDLE, IN_ERROR

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

    from .dialects import Dialect
    from .dialects.transactions import WorkTransaction

logger = logging.getLogger("django_idempotency")


def _stay() -> None:
    """Leave a connection open."""


class TransactionGuard(Guard):
    """A locked row inside the work's own transaction."""

    def __init__(
        self,
        connection: BaseDatabaseWrapper,
        dialect: Dialect,
        *,
        block: Block | None = None,
        own: WorkTransaction | None = None,
    ) -> None:
        super().__init__(committed=False)
        self._own = own
        #: The request's own transaction, which this guard takes over.
        self._block = block
        self._connection = connection
        self._dialect = dialect
        self._savepoint: str | None = None
        self._joined = connection.in_atomic_block if block is None else block.joined
        #: Did a statement of the work, and not a deadlock, abort PostgreSQL's transaction?
        self._broke_it = False
        self._over = False
        self._loss_is_logged = False
        #: In a caller's transaction: does the savepoint stay when the work is over?
        self.keeps = False

    def needs_rollback(self) -> bool:
        connection = self._connection
        return connection.needs_rollback or not connection.in_atomic_block or self._status() == IN_ERROR

    def _status(self) -> int | None:
        return self._dialect.transaction_status(self._connection)

    # A transaction is ours as long as it has our mark: its id if it has one (the settle compares that in its own
    # statement), otherwise a savepoint: ours, or Django's inside a caller's transaction. Both disappear with the
    # transaction, whatever ends it, and no other transaction has them. The driver's status is not enough: another one
    # may have begun.

    @contextmanager
    def locking(self) -> Iterator[None]:
        """In a request's block, let a lock that fails break nothing else: its savepoint is rolled back."""
        if self._dialect.transaction_id:
            with transaction.atomic(using=self._connection.alias):
                yield
            return
        self._make_savepoint()
        try:
            yield
        except BaseException:
            self._undo_to_savepoint()
            raise

    def mark(self) -> None:
        if self._block is not None:
            self._block.take(self._mark_committed)
        elif self.transaction_id is None and self._own is None and not self._joined:
            try:
                self._make_savepoint()
            except Error as error:
                raise StoreUnavailable from error

    def _make_savepoint(self) -> None:
        connection = self._connection
        if connection.features.uses_savepoints:
            # Named by depth: of two savepoints with the same name MariaDB keeps only the later one.
            name = f"django_idempotency_{len(connection.savepoint_ids)}"
            self._execute(connection.ops.savepoint_create_sql(name))
            self._savepoint = name

    def _undo_to_savepoint(self) -> None:
        """Undo what followed our savepoint. If that fails, as after a lost connection, the whole transaction is rolled back."""
        name, self._savepoint = self._savepoint, None
        try:
            if name is not None:
                self._execute(self._connection.ops.savepoint_rollback_sql(name))
                self._execute(self._connection.ops.savepoint_commit_sql(name))
        except Error:
            self._connection.needs_rollback = True

    def _execute(self, sql: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(sql)

    def lost(self) -> bool:
        # An aborted transaction cannot be queried. If an error of the work aborted it, it is still ours.
        lost = not (self._broke_it if self._status() == IN_ERROR else self._signed())
        if lost:
            self.log_loss()
        return lost

    def log_loss(self) -> None:
        """Log, once, that the transaction was not the guard's own any more."""
        if self._loss_is_logged:
            return
        self._loss_is_logged = True
        logger.error(
            "The transaction of an atomic guard on %r was ended or replaced while the work ran: by the database, which "
            "gave it up, by a lost connection, or by a COMMIT or ROLLBACK in the work. Its response is not remembered. "
            "Its writes are gone, except what the work itself has committed: that stays, and a retry repeats it.",
            self._connection.alias,
        )

    def _signed(self) -> bool:
        connection, marked = self._connection, self._connection.needs_rollback
        if not connection.in_atomic_block:
            return False
        if self._savepoint is None and self.transaction_id is None and not marked:
            # The end of our own transaction, or of Django's savepoint, finds out the rest.
            return self._status() != IDLE
        try:
            if marked:  # Django would refuse the query
                transaction.set_rollback(False, using=connection.alias)
            return self._has_mark()
        except Exception:  # noqa: BLE001 - any driver's error, also that of a lost connection
            return False
        finally:
            if marked:
                transaction.set_rollback(True, using=connection.alias)

    def _has_mark(self) -> bool:
        connection = self._connection
        if self._own is not None:
            return self._own.is_ours()
        if self.transaction_id is not None:
            with connection.cursor() as cursor:
                cursor.execute(f"SELECT {self._dialect.transaction_id}")
                return bool(cursor.fetchone()[0] == self.transaction_id)
        if self._savepoint is not None:
            name, self._savepoint = self._savepoint, None
            self._execute(connection.ops.savepoint_commit_sql(name))
        elif connection.savepoint_ids:  # Django's, to which the caller's transaction returns next
            self._execute(connection.ops.savepoint_rollback_sql(connection.savepoint_ids[-1]))
        return True

    def set_rollback(self) -> None:
        if self._connection.in_atomic_block and (self._block is None or self._block.taken):
            transaction.set_rollback(True, using=self._connection.alias)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        begun = False
        try:
            with transaction.atomic(using=self._connection.alias):
                begun = True
                yield
        except Error as error:
            if not begun:  # no savepoint: the transaction is gone
                raise StoreUnavailable from error
            logger.exception("A receiver of a signal has broken its database transaction; it was rolled back.")

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Refuse what would end the transaction, or needs one of its own, and note how it ends.

        In a caller's transaction, only its savepoint is visible to us.
        """
        connection = self._connection
        stays = self._block is None and not self._joined
        if self._block is None:
            connection.atomic_blocks[-1] = self  # type: ignore[call-overload] # see _from_testcase
        if stays:
            transaction.on_commit(self._mark_committed, using=connection.alias)
            # Without us, close_old_connections() in the work does no harm: it may find no transaction open.
            connection.close_if_unusable_or_obsolete = _stay  # type: ignore[method-assign]
        try:
            with connection.execute_wrapper(self._notice):
                yield
            self.keeps = self._joined and not self.needs_rollback()
        finally:
            if stays:
                del connection.close_if_unusable_or_obsolete
            self._over = True  # Django removes the last wrapper, which may not be ours

    @property
    def _from_testcase(self) -> bool:
        """Refuse a durable block: before it begins, Django asks this of the block around it."""
        raise self.refuse(DurableInsideGuard())

    def left(self) -> None:
        """Note that the guard has ended without an error."""
        self.committed = self.committed or self.keeps

    def _mark_committed(self) -> None:
        self.committed = True

    def _notice(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if self._over:
            return execute(sql, params, many, context)
        if self._dialect.ends_transaction(sql):
            raise self.refuse(ImplicitCommit())
        if self._own is not None:
            self._own.adapt(context["cursor"])
        before = self._status()
        if before == IDLE:  # ours is gone: the statement would be committed in another one, or at once on SQLite
            self.log_loss()
            raise TransactionLost
        try:
            done = execute(sql, params, many, context)
        except Error as error:
            if before != IN_ERROR:
                self._broke_it = not database_errors.deadlocked(error)
            raise
        self._broke_it = False  # a savepoint has undone what an earlier statement broke
        return done
