"""Records in a Django database: the default store, and the one that can keep `atomic`."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import DEFAULT_DB_ALIAS, Error, IntegrityError, connections, transaction

from ..core import rules
from ..core.records import Guarantee, Record, Settlement, Ticket, changed
from ..errors import ConfigurationError, ImplicitCommit, LostRace, OutcomeUnknown, StoreUnavailable
from . import faults
from .base import Audit, BaseStore, Hold, Intervention, Purged
from .dialects import ends_transaction
from .holding import HELD, Held

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

    from .statements import Bound, Statements

logger = logging.getLogger("django_idempotency")

#: libpq's name for a transaction in which a statement has failed; psycopg 3 and 2 hand it through.
_INERROR = 3


class ORMStore(BaseStore):
    """Records in the database `using`.

    `atomic` covers the writes on that database and no other. Claims on PostgreSQL are committed asynchronously, which
    the work's own COMMIT flushes. On SQLite there is one writer: requests with different keys queue for it.
    """

    supports_atomic = True

    def __init__(self, *, using: str = DEFAULT_DB_ALIAS) -> None:
        self.using = using

    # -------------------------------------------------------------------------------------------------------- claim

    def claim(self, ticket: Ticket) -> Record:
        connection = self._connection
        joined = connection.in_atomic_block
        if not joined:
            self._require_autocommit(connection)
        with self._translated(), self._statements.dialect.joining(connection) if joined else nullcontext():
            run: rules.Execute | None = None
            for _ in range(3):
                record = self._insert_or_read(connection, ticket, joined=joined)
                if record is None:
                    continue  # purged between two statements: ask again
                if run is not None and rules.owned(record, ticket):
                    return changed(record, taken=run.takeover, joined=joined)
                if ticket.guarantee is Guarantee.ATOMIC or not rules.takeable(record, ticket):
                    return changed(record, joined=True) if joined else record
                # Takeover, compared with what was read:   owner |--- lease ---|  (silent)
                #                                          we                        |--- lease ---|
                run = rules.succession(record)
                taking = self._statements.take(
                    ticket, record, attempt=run.attempt, new_life=run.new_life, joined=joined
                )
                self._write(connection, taking)
        raise LostRace

    def _require_autocommit(self, connection: BaseDatabaseWrapper) -> None:
        with self._translated():
            if connection.get_autocommit():
                return
        raise ConfigurationError(
            f"The connection {self.using!r} is not in autocommit, so nobody else would see a claim on it. "
            'Take "AUTOCOMMIT": False out of DATABASES, and leave set_autocommit(False) to atomic().'
        )

    async def aclaim(self, ticket: Ticket) -> Record:
        """See claim()."""
        return await sync_to_async(self.claim)(ticket)

    def _insert_or_read(self, connection: BaseDatabaseWrapper, ticket: Ticket, *, joined: bool) -> Record | None:
        sql = self._statements
        record = self._read(connection, sql.select(ticket.id)) if sql.dialect.reads_first else None
        if record is not None:
            return record
        try:
            if not sql.dialect.returns:
                self._write(connection, sql.insert(ticket, joined=joined))
            elif (row := self._row(connection, sql.insert(ticket, joined=joined))) is not None:
                return rules.born(ticket, sql.clock(row, connection))
        except IntegrityError as error:
            if not faults.duplicate(error):  # MySQL's way to say that the key is known
                raise
        except Error as error:
            # The row is locked by its owner, or a caller's transaction has inserted the key and is still open.
            if joined or not faults.lost_race(error):
                raise
            record = self._read(connection, sql.select(ticket.id))
            if record is None:
                raise
            return record
        return self._read(connection, sql.select(ticket.id, joined=joined))

    # -------------------------------------------------------------------------------------------------------- guard

    @contextmanager
    def guard(self, ticket: Ticket, *, takeover: bool = False) -> Iterator[Hold]:
        """See BaseStore.guard(). Raises `OutcomeUnknown` when the connection broke in COMMIT."""
        if ticket.guarantee is not Guarantee.ATOMIC:
            yield Hold()
            return
        held, mine = frozenset(one for one in HELD.get() if not one.over), Held(self.using, ticket.id)
        if any(one.name == mine.name for one in held):
            yield Hold(joins=True)  # our own caller holds it
            return
        connection = self._connection
        hold = TransactionHold(connection)
        try:
            with ExitStack() as transaction_ends:
                with self._translated(), self._statements.dialect.impatient(connection) if takeover else nullcontext():
                    transaction_ends.enter_context(transaction.atomic(using=self.using))
                    hold.record = self._lock(connection, ticket, takeover=takeover)
                transaction_ends.enter_context(hold.watch())
                HELD.set(held | {mine})
                try:
                    yield hold
                finally:
                    mine.over = True
                    HELD.set(held)  # not reset(): under ASGI the door may close in another copy of the context
        except Error as error:
            if not hold.committed and faults.connection_lost(error):
                raise OutcomeUnknown from error
            raise

    def _lock(self, connection: BaseDatabaseWrapper, ticket: Ticket, *, takeover: bool) -> Record | None:
        if connection.features.has_select_for_update:
            return self._read(connection, self._statements.lock(ticket, takeover=takeover))
        self._write(connection, self._statements.touch(ticket))
        return self._read(connection, self._statements.select(ticket.id))

    def wait(self, ticket: Ticket, *, seconds: float) -> None:
        """Wait for the row's lock, which an `atomic` owner holds until its COMMIT: no poll, and a trip a waiter."""
        connection = self._connection
        bound = self._statements.wait(ticket, seconds)
        if ticket.guarantee is not Guarantee.ATOMIC or connection.in_atomic_block or bound is None:
            return
        with suppress(LostRace), self._translated():  # a lost race: the time was over first
            self._row(connection, bound)

    # ----------------------------------------------------------------------------------------------- settle, purge

    def settle(self, ticket: Ticket, settlement: Settlement) -> bool:
        with self._translated():
            return self._write(self._connection, self._statements.settle(ticket, settlement)) == 1

    async def asettle(self, ticket: Ticket, settlement: Settlement) -> bool:
        """See settle()."""
        return await sync_to_async(self.settle)(ticket, settlement)

    def renew(self, tickets: Sequence[Ticket]) -> set[UUID]:
        if not tickets:
            return set()
        connection = self._connection
        with self._translated():
            owners = {ticket.owner for ticket in tickets}
            if self._renewed(connection, tickets) == len(owners):  # nearly always: one trip
                return owners
            with connection.cursor() as cursor:
                cursor.execute(*self._statements.owners(tickets))
                return owners & {self._statements.owner(row) for row in cursor.fetchall()}

    def _renewed(self, connection: BaseDatabaseWrapper, tickets: Sequence[Ticket]) -> int:
        """Renew them together; apart, where one of their rows is locked: nobody takes that one meanwhile."""
        try:
            return self._write(connection, self._statements.renew(tickets))
        except Error as error:
            if not faults.lost_race(error):
                raise
            return sum(self._renewed(connection, [ticket]) for ticket in tickets) if len(tickets) > 1 else 0

    def close(self) -> None:
        self._connection.close()

    def purge(self, *, limit: int, since: datetime | None = None) -> Purged:
        from .purging import purge  # not above: loads the model

        with self._translated():
            return purge(self._connection, limit=limit, since=since)

    def look(self, record_id: UUID) -> Record | None:
        with self._translated():
            return self._read(self._connection, self._statements.select(record_id))

    def after_commit(self, call: Callable[[], None]) -> None:
        transaction.on_commit(call, using=self.using, robust=True)

    # ----------------------------------------------------------------------------------------------- for an operator

    def release(self, record_id: UUID, *, audit: Audit) -> Intervention:
        """Make a key free by hand, if nobody holds it. `audit` is called in the same transaction."""
        from .operating import release  # not above: loads the model

        with self._translated():
            return release(self, record_id, audit)

    def expire(self, record_id: UUID, *, audit: Audit) -> Intervention:
        """Take a record as expired from now on, if nobody holds it. `audit` is called in the same transaction."""
        from .operating import expire  # not above: loads the model

        with self._translated():
            return expire(self, record_id, audit)

    def count_due(self, *, limit: int) -> int:
        """Count what a purge would delete, up to `limit`."""
        from .operating import count_due  # not above: loads the model

        with self._translated():
            return count_due(self._connection, limit)

    # ------------------------------------------------------------------------------------------------------ plumbing

    @property
    def _connection(self) -> BaseDatabaseWrapper:
        return connections[self.using]

    @cached_property
    def _statements(self) -> Statements:
        from .statements import Statements  # not above: loads the model, and settings may name this class earlier

        with self._translated():
            return Statements(self._connection)

    def _read(self, connection: BaseDatabaseWrapper, bound: Bound) -> Record | None:
        row = self._row(connection, bound)
        return None if row is None else self._statements.record(row, connection)

    def _row(self, connection: BaseDatabaseWrapper, bound: Bound) -> tuple[Any, ...] | None:
        with connection.cursor() as cursor:
            cursor.execute(*bound)
            row: tuple[Any, ...] | None = cursor.fetchone()
        return row

    def _write(self, connection: BaseDatabaseWrapper, bound: Bound) -> int:
        with connection.cursor() as cursor:
            cursor.execute(*bound)
            return int(cursor.rowcount)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except Error as error:
            if not faults.lost_race(error):
                raise StoreUnavailable from error
            # Django's database errors hold themselves alive, and in their frames the cursor of a BEGIN that failed. SQLite
            # would let whoever collects that wait for this connection, which may be waiting for the collector's lock.
            traceback.clear_frames(error.__traceback__)
            raise LostRace from error


class TransactionHold(Hold):
    """A locked row inside the work's own transaction."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        super().__init__(joins=True)
        self._connection = connection
        self._driver: Any = None
        self._joined = connection.in_atomic_block
        self._deadlocked = False

    def doomed(self) -> bool:
        return self._gone() or self._connection.needs_rollback or self._aborted()

    def _gone(self) -> bool:
        """Is the transaction not the one that the guard began? InnoDB rolls all of it back at a deadlock."""
        connection = self._connection
        anew = connection.connection is not self._driver or not connection.in_atomic_block
        return anew or (self._deadlocked and connection.vendor == "mysql")

    def _aborted(self) -> bool:
        """Did the work swallow an error that PostgreSQL has not forgotten (25P02)? The driver knows without asking."""
        if self._connection.vendor != "postgresql" or self._connection.connection is None:
            return False
        return bool(self._connection.connection.info.transaction_status == _INERROR)

    def broken(self) -> bool:
        if self._gone():
            return True
        if not self.doomed():
            return False
        driver = self._connection.connection
        if self._deadlocked or driver is None or self._connection.closed_in_transaction:
            return True
        if self._connection.vendor == "mysql":  # not is_usable(), since PyMySQL's ping connects anew
            try:
                with driver.cursor() as cursor:
                    cursor.execute("SELECT 1")
            except Exception:  # noqa: BLE001 - whatever the driver calls it
                return True
        return self._connection.vendor == "postgresql" and bool(driver.closed)

    def give_up(self) -> None:
        if self._connection.in_atomic_block:
            transaction.set_rollback(True, using=self._connection.alias)

    @contextmanager
    def aside(self) -> Iterator[None]:
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
        """Notice what becomes of the transaction. In a caller's transaction, its savepoint is what we can see."""
        self._driver = self._connection.connection
        if not self._joined:
            transaction.on_commit(self._mark_committed, using=self._connection.alias)
        try:
            # A deadlock is told once, to whoever met it, and the work may swallow it.
            with self._connection.execute_wrapper(self._notice):
                yield
            if self._joined:
                self.committed = not self.doomed()
        finally:
            # Kept in a cycle, it would be freed by a collection in whatever thread, and there wait for SQLite's locks.
            self._driver = None

    def _mark_committed(self) -> None:
        self.committed = True

    def _notice(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if ends_transaction(sql, self._connection.vendor):
            raise ImplicitCommit
        try:
            return execute(sql, params, many, context)
        except Error as error:
            self._deadlocked |= faults.deadlocked(error)
            raise
