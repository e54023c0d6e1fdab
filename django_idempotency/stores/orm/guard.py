"""The guard of `atomic`: the transaction of the work, which begins with the record's lock, and is
known again at its end.

There is one rule. If a transaction is open on the record's database, the guard joins it; else it
begins one, and its commit() is the settle and the COMMIT.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db import Error, connections, transaction

from ...core.conclusions import Rollback
from ...core.records import Record, Ticket
from ...errors import (
    DurableInsideGuard,
    ImplicitCommit,
    OutcomeUnknown,
    OwnershipLost,
    StoreUnavailable,
    TransactionLost,
)
from ..base import Guard
from ..interrupted import IN_ERROR, Before, drop_if_cut, given_up
from . import database_errors
from .database_errors import translate
from .dialects.base import IDLE
from .dialects.ending import ends_within

if TYPE_CHECKING:
    from .dialects.ending import Ending
    from .dialects.transactions import Bound, WorkTransaction
    from .statements import Statements

logger = logging.getLogger("django_idempotency")


@contextmanager
def protected(alias: str) -> Iterator[None]:
    """Contain errors of a database in this block, in a savepoint of the transaction that is open
    there.
    """
    begun = False
    try:
        with transaction.atomic(using=alias):
            begun = True
            yield
    except Error as error:
        if not begun:  # no savepoint: the transaction is gone
            raise StoreUnavailable from error
        logger.exception(
            "What hears of an event has broken its database transaction; it was rolled back."
        )


class ActiveGuard:
    """A guard and its record. A task or thread started inside inherits it, and may outlive it."""

    #: The alias of its database, and the id of its record.
    name: tuple[str, UUID]
    ended = False


#: The guards of this thread or task. A row lock does not stop its own transaction.
ACTIVE_GUARDS: ContextVar[frozenset[ActiveGuard]] = ContextVar(
    "django_idempotency_active_guards", default=frozenset()
)


def ends_transaction(sql: object, ending: Ending) -> bool:
    """Does a database certainly end the open transaction when it runs `sql`?

    Of a single statement its beginning says so.
    """
    if isinstance(sql, str) and ";" not in sql:
        return ending.statement.match(sql) is not None
    return ends_within(sql, ending)


def _stay() -> None:
    """Leave a connection open."""


class InnerGuard(Guard):
    """A guard inside that of its own caller, which holds the record."""

    committed = False


class TransactionGuard(Guard):
    """A locked row inside the work's own transaction.

    Entering it begins the transaction and locks the row. commit() writes the row and commits. Its
    exit commits what has nothing to write, and rolls back what was marked for rollback. In a
    caller's transaction, only its savepoint is visible to us.
    """

    #: Did the project say set_rollback(True), before any error marked the transaction?
    asked = False
    #: The error for which the database has rolled the transaction back, or (InnoDB's lock wait
    #: timeout) may have.
    _given_up: Error | None = None
    _raced: Error | None = None
    #: What heard set_rollback() before us, such as the guard of a caller.
    _heard_before: Callable[[bool], None] | None = None
    #: The transaction that begins with the lock and settles with its COMMIT, if there can be one.
    _own: WorkTransaction | None = None
    #: What begins and ends the transaction.
    _transaction: AbstractContextManager[None] | None = None
    _savepoint: str | None = None
    _over = False
    #: How much the connection had written when the work began; `None`: that was not asked.
    _written: Any = None
    _loss_is_logged = False
    #: In a caller's transaction: does the savepoint stay when the work is over?
    _keeps = False
    #: May the work have begun? Until then the transaction has statements of ours only.
    _is_marked = False

    def __init__(
        self,
        sql: Statements,
        using: str,
        ticket: Ticket,
        *,
        takeover: bool,
        claimed: Record | None,
        combine: bool,
    ) -> None:
        """`combine`: our own transaction settles with its COMMIT, where the driver can."""
        self.committed = False
        self._sql = sql
        self._dialect = sql.dialect
        self._ticket = ticket
        self._takeover = takeover
        self._claimed = claimed
        self._combines = combine
        connection = connections[using]
        self._connection = connection
        #: Is there a transaction around ours?
        self._joined = connection.in_atomic_block
        self._before = Before(
            connection,
            self._joined,
            len(connection.atomic_blocks),
            len(connection.savepoint_ids),
        )
        self._active = ActiveGuard()
        self._active.name = (using, ticket.id)

    # ---------------------------------------------------------------------------------------- begin

    def __enter__(self) -> Guard:
        try:
            try:
                with self._dialect.impatient(self._connection) if self._takeover else nullcontext():
                    self._begin()
            except Error as error:
                translate(error, self._connection.alias)
            self._watch()
            return self  # noqa: TRY300 - an interrupt at this line, too, ends what has begun
        except BaseException as error:
            drop_if_cut(self._connection, error)
            try:
                self._end(error)
            finally:
                self.restore()
            raise

    def _begin(self) -> None:
        """Begin the transaction, lock the row, and read it: what may have changed since our claim,
        or all of it.

        Read the transaction's id, too.
        """
        sql = self._sql
        connection = self._connection
        claimed = self._claimed
        bound = sql.lock(self._ticket, takeover=self._takeover, brief=claimed is not None)
        if self._combines and not self._joined and connection.get_autocommit():
            self._own = self._dialect.own_transaction(connection)
        own = self._own
        begins = own or transaction.atomic(using=connection.alias)
        begins.__enter__()
        self._transaction = begins
        row = sql.fetched(connection, bound) if own is None else own.lock(bound)
        if not sql.lock_reads:
            row = sql.fetched(connection, sql.read(self._ticket, brief=claimed is not None))
        if row is None:
            return
        if self._dialect.transaction_id:
            self.transaction_id = row[-1]
            row = row[:-1]
        self.finds_loss = own is not None or self.transaction_id is not None
        if claimed is None:
            self.record = sql.record(row, connection)
            return
        owner, status, attempt = row
        owner = owner if isinstance(owner, UUID) else UUID(owner)
        if (owner, status, attempt) == (claimed.owner, claimed.status, claimed.attempt):
            self.record = claimed

    def _watch(self) -> None:
        """From here on, refuse what would end the transaction, or needs one of its own, and note
        how it ends.
        """
        connection = self._connection
        connection.atomic_blocks[-1] = self  # type: ignore[call-overload] # see _from_testcase
        if not self._joined:
            transaction.on_commit(self._mark_committed, using=connection.alias)
            # Without us, close_old_connections() in the work does no harm: it may find no
            # transaction open.
            connection.close_if_unusable_or_obsolete = _stay  # type: ignore[method-assign]
        self._heard_before = vars(connection).get("set_rollback")
        connection.set_rollback = self._hear  # type: ignore[method-assign]
        connection.execute_wrappers.append(self._notice)
        held = [one for one in ACTIVE_GUARDS.get() if not one.ended]
        ACTIVE_GUARDS.set(frozenset([*held, self._active]))

    # ------------------------------------------------------------------------------------------ end

    def commit(self, bound: Bound) -> None:
        """Write the record by a statement that must update one row, and commit. The guard is over.

        Raises `OwnershipLost` if it updates none, `TransactionLost` if the transaction is not ours
        any more, `LostRace` or `StoreUnavailable` if the statement fails, and the error of a COMMIT
        that has failed: everything was rolled back. `OutcomeUnknown`: COMMIT was not answered. The
        error of an `on_commit` callback: everything is committed.
        """
        if self._own is not None:
            self._own.settling = bound
        else:
            self._write(bound)
        self.__exit__(None, None, None)
        if not self.committed:
            raise TransactionLost

    def _write(self, bound: Bound) -> None:
        """Update the record. In a caller's transaction that alone can be done."""
        try:
            settled = self._sql.written(self._connection, bound) == 1
        except Error as error:
            if self.transaction_id is not None and self.lost():
                raise TransactionLost from error
            translate(error, self._connection.alias)
        except BaseException as error:
            drop_if_cut(self._connection, error)
            raise
        if not settled:
            self.set_rollback()
            raise TransactionLost if self.lost() else OwnershipLost

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._over:
            return
        try:
            self._over = True  # we remove the last wrapper, which may not be ours
            undone = error is None and not self._joined and self._connection.needs_rollback
            try:
                self._leave()
                self._keeps = error is None and self._joined and not self.needs_rollback()
                # An exception holds its frames, and these a cursor and us: nothing of it may wait
                # for garbage collection.
                self.error = None
                self._given_up = None
                self._raced = None
            except BaseException as broken:
                self._end(broken)
                raise
            self._end(error, undone=undone)
        except BaseException:
            self.restore()
            raise

    def restore(self) -> None:
        """See Guard.restore().

        What an interrupt has left open is rolled back by closing its connection.
        """
        self._over = True
        if self._own is not None:
            self._own.restore()
        self._leave()
        self._before.restore()

    def _leave(self) -> None:
        """Give back what _watch() has replaced. May be called any number of times."""
        self._active.ended = True
        # Not reset(): under ASGI the guard may end in another copy of the context.
        ACTIVE_GUARDS.set(frozenset([one for one in ACTIVE_GUARDS.get() if not one.ended]))
        connection = self._connection
        own = vars(connection)
        if self._notice in connection.execute_wrappers:
            connection.execute_wrappers.remove(self._notice)
        if own.get("set_rollback") == self._hear:
            if self._heard_before is None:
                own.pop("set_rollback")
            else:
                own["set_rollback"] = self._heard_before
        if not self._joined:
            own.pop("close_if_unusable_or_obsolete", None)

    def _end(self, error: BaseException | None, *, undone: bool = False) -> None:
        """End the transaction, if it has begun.

        `error`: what leaves the guard. `undone`: it was marked for rollback. Then it ended with its
        connection, and only another connection could not be made.
        """
        try:
            if self._transaction is not None:
                kind = None if error is None else type(error)
                trace = None if error is None else error.__traceback__
                self._transaction.__exit__(kind, error, trace)
        except Error as failed:
            if undone:
                return
            if not self._is_marked:
                translate(failed, self._connection.alias)
            self._explain(failed)
            raise
        except TransactionLost:
            if not self.committed:  # of a callback of its COMMIT otherwise
                self.log_loss()
            raise
        except BaseException as failed:
            drop_if_cut(self._connection, failed)
            raise
        if error is not None:
            self._explain(error)
        elif self._keeps:
            self.committed = True

    def _explain(self, error: BaseException) -> None:
        """Raise what an error at the end means, if it says more than the error itself."""
        if isinstance(error, TransactionLost):
            self.log_loss()
        elif isinstance(error, Error):
            # Django's savepoint in a caller's transaction is gone, with all that followed it.
            if self._keeps:
                raise TransactionLost from error
            if not self.committed and database_errors.unanswered(error):
                raise OutcomeUnknown from error

    # ------------------------------------------------------------------------------------ questions

    def needs_rollback(self) -> bool:
        return self.rollback_cause() is not Rollback.NONE

    def rollback_cause(self) -> Rollback:
        if self._given_up is not None:
            self.error = self._given_up
            return Rollback.ERROR
        connection = self._connection
        dialect = self._dialect
        if dialect.aborts and dialect.transaction_status(connection) == IN_ERROR:
            return Rollback.ERROR
        if connection.needs_rollback or not connection.in_atomic_block:
            return Rollback.ASKED if self.asked else Rollback.ERROR
        return Rollback.NONE

    def count_writes(self) -> None:
        if self._dialect.counts_in_transaction and not self._joined:
            return  # nothing was written in it before the work
        try:
            with self._unnoticed():
                self._written = self._dialect.writes_so_far(self._connection, self._sql.table)
        except Error:  # a broken connection, say: then wrote() is in doubt
            self._written = None

    def wrote(self) -> bool:
        if self.needs_rollback():
            return False
        connection = self._connection
        aborts = self._dialect.aborts
        try:
            # A savepoint, so that a query which fails aborts nothing of the work's.
            with (
                self._unnoticed(),
                transaction.atomic(connection.alias) if aborts else nullcontext(),
            ):
                return self._dialect.has_written(connection, self._written, self._sql.table)
        except Exception:  # noqa: BLE001 - any driver's error: in doubt it wrote
            return True

    @contextmanager
    def _unnoticed(self) -> Iterator[None]:
        """Send statements that are not the work's."""
        self._over = True
        try:
            yield
        except BaseException as error:
            drop_if_cut(self._connection, error)
            raise
        finally:
            self._over = False

    # A transaction is ours as long as it has our mark: its id if it has one (the settle compares
    # that in its own statement), otherwise a savepoint: ours, or Django's inside a caller's
    # transaction. Both disappear with the transaction, whatever ends it, and no other transaction
    # has them. The driver's status is not enough: another one may have begun.

    def mark(self) -> None:
        self._is_marked = True
        connection = self._connection
        if (
            self.transaction_id is None
            and self._own is None
            and not self._joined
            and connection.features.uses_savepoints
        ):
            # Named by depth: of two savepoints with the same name MariaDB keeps only the later one.
            name = f"django_idempotency_{len(connection.savepoint_ids)}"
            try:
                with self._unnoticed():
                    self._execute(connection.ops.savepoint_create_sql(name))
            except Error as error:
                raise StoreUnavailable from error
            self._savepoint = name

    def _execute(self, sql: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(sql)

    def lost(self) -> bool:
        status = self._dialect.transaction_status(self._connection)
        # An aborted transaction cannot be queried: an error has ended it.
        if self._given_up is not None or status == IN_ERROR or self._is_signed(status):
            return False
        if self._raced is not None:  # InnoDB with innodb_rollback_on_timeout
            self._given_up = self._raced
            return False
        self.log_loss()
        return True

    def log_loss(self) -> None:
        """Log, once, that the transaction was not the guard's own any more."""
        if self._loss_is_logged:
            return
        self._loss_is_logged = True
        logger.error(
            "The transaction of an atomic guard on %r was ended or replaced while the work "
            "ran: by the database, which "
            "gave it up, by a lost connection, or by a COMMIT or ROLLBACK in the work. Its "
            "response is not remembered. "
            "Its writes are gone, except what the work itself has committed: that stays, "
            "and a retry repeats it.",
            self._connection.alias,
        )

    def _is_signed(self, status: int | None) -> bool:
        connection = self._connection
        marked = connection.needs_rollback
        if not connection.in_atomic_block:
            return False
        if self._savepoint is None and self.transaction_id is None and not marked:
            # The end of our own transaction, or of Django's savepoint, finds out the rest.
            return status != IDLE
        try:
            if marked:  # Django would refuse the query
                connection.needs_rollback = False
            with self._unnoticed():
                return self._has_mark()
        except Exception:  # noqa: BLE001 - any driver's error, also that of a lost connection
            return False
        finally:
            if marked:
                connection.needs_rollback = True

    def _has_mark(self) -> bool:
        connection = self._connection
        if self._own is not None:
            return self._own.is_ours()
        if self.transaction_id is not None:
            with connection.cursor() as cursor:
                cursor.execute(f"SELECT {self._dialect.transaction_id}")
                return bool(cursor.fetchone()[0] == self.transaction_id)
        if self._savepoint is not None:
            name = self._savepoint
            self._savepoint = None
            self._execute(connection.ops.savepoint_commit_sql(name))
        elif connection.savepoint_ids:  # Django's, to which the caller's transaction returns next
            self._execute(connection.ops.savepoint_rollback_sql(connection.savepoint_ids[-1]))
        return True

    def set_rollback(self) -> None:
        if not self._over and self._connection.in_atomic_block:
            transaction.set_rollback(True, using=self._connection.alias)

    def savepoint(self) -> AbstractContextManager[None]:
        return protected(self._connection.alias)

    @property
    def _from_testcase(self) -> bool:
        """Refuse a durable block: before it begins, Django asks this of the block around it."""
        raise self.refuse(DurableInsideGuard())

    def _mark_committed(self) -> None:
        self.committed = True

    def _hear(self, rollback: bool) -> None:
        """Stand in for the connection's `set_rollback()`. A mark that was not set by that is an
        error's: Django sets it for an exception that leaves an atomic() block.
        """
        connection = self._connection
        asked = rollback and (self.asked or not connection.needs_rollback)
        if self._heard_before is None:
            type(connection).set_rollback(connection, rollback)
        else:
            self._heard_before(rollback)
        self.asked = asked

    def _notice(self, execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        if self._over:
            return execute(sql, params, many, context)
        if ends_transaction(sql, self._dialect.ending):
            raise self.refuse(ImplicitCommit())
        if self._own is not None and self._own.adapt is not None:
            self._own.adapt(context["cursor"])
        connection = self._connection
        status = self._dialect.transaction_status(connection)
        if status == IDLE:
            # Ours is gone: the statement would be committed in another one, or at once on SQLite.
            if self._given_up is not None:  # as Django says where it has marked the transaction
                raise given_up(self._given_up)
            self.log_loss()
            raise TransactionLost
        if status != IN_ERROR and not connection.needs_rollback:
            # A savepoint has undone what was marked, or broken.
            self.asked = False
            self.error = None
        try:
            return execute(sql, params, many, context)
        except Error as error:
            self._note(error, status)
            raise

    def _note(self, error: Error, status: int | None) -> None:
        """Note an error of the work. `status` is the transaction's before it."""
        if self.error is None or status != IN_ERROR:  # the first one has aborted it
            self.error = error
        if self._dialect.gives_up(self._connection, error):
            self._given_up = self._given_up or error
        elif not self._dialect.aborts and database_errors.lost_race(error):
            self._raced = error
