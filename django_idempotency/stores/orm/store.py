"""Records in a Django database: the default store, and the one that supports `atomic`."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.core.checks import CheckMessage
from django.db import DEFAULT_DB_ALIAS, Error, IntegrityError, connections, transaction

from ...concurrency.threads import in_thread
from ...core import rules
from ...core.interventions import Intervention
from ...core.records import Guarantee, Record, Settlement, Ticket
from ...core.repeats import Counted, Repeats
from ...errors import (
    ConfigurationError,
    IdempotencyError,
    LostRace,
    OutcomeUnknown,
    TransactionLost,
)
from ..base import Audit, BaseStore, Guard, Purged, Scanned
from ..blocks import offered
from ..database_checks import check_database
from . import database_errors
from .active_guards import ACTIVE_GUARDS, ActiveGuard
from .beside import beside
from .checks import check_dialect
from .transaction_guard import TransactionGuard
from .translating import translated

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

    from .dialects.transactions import Bound, WorkTransaction
    from .statements import Statements

logger = logging.getLogger("django_idempotency")


class ORMStore(BaseStore):
    """Records in the database `using`.

    `atomic` covers the writes on that database and no other. On PostgreSQL its claims are committed asynchronously, and
    the work's own COMMIT flushes them. SQLite has one writer: requests with different keys queue for it.
    """

    supports_atomic = True
    counts_repeats = True

    def __init__(self, *, using: str = DEFAULT_DB_ALIAS, combine: bool = True) -> None:
        self.using = self.rows_in = using
        self.combine = combine

    def check(self, alias: str, *, deploy: bool = False, copies_only: bool = False) -> Iterable[CheckMessage]:
        """See BaseStore.check(). Here there is always a database to name."""
        return () if deploy else (*check_database(alias, self.using), *check_dialect(alias, self.using))

    # -------------------------------------------------------------------------------------------------------- claim

    def claim(self, ticket: Ticket) -> Record:
        connection, block = self._connection, offered(self.using)
        if block is not None and block.beside is not None:
            connection = block.beside
        joined = connection.in_atomic_block
        if not joined:
            self._require_autocommit(connection)
        with translated, self._statements.dialect.joining(connection) if joined else nullcontext():
            run: rules.Execute | None = None
            for _ in range(3):
                record = self._insert_or_read(connection, ticket, joined=joined)
                if record is None:
                    continue  # purged between two statements: try again
                if run is not None and rules.owned(record, ticket):
                    return record._replace(taken=run.takeover, joined=joined)
                if ticket.guarantee is Guarantee.ATOMIC or not rules.takeable(record, ticket):
                    return record._replace(joined=True) if joined else record
                # Takeover, compared with what was read:   owner |--- lease ---|  (silent)
                #                                          we                        |--- lease ---|
                run = rules.succession(record)
                taking = self._statements.take(ticket, record, run, joined=joined)
                self._write(connection, taking)
        raise LostRace

    def _require_autocommit(self, connection: BaseDatabaseWrapper) -> None:
        with translated:
            if connection.get_autocommit():
                return
        raise ConfigurationError(
            f"The connection {self.using!r} is not in autocommit, so nobody else would see a claim on it. "
            'Take "AUTOCOMMIT": False out of DATABASES, and leave set_autocommit(False) to atomic().'
        )

    async def aclaim(self, ticket: Ticket) -> Record:
        """See claim()."""
        return await in_thread(self.claim, ticket, close=self.close)

    def _insert_or_read(self, connection: BaseDatabaseWrapper, ticket: Ticket, *, joined: bool) -> Record | None:
        sql = self._statements
        record = self._read(connection, sql.select(ticket.id)) if sql.dialect.reads_first else None
        if record is not None:
            return record
        operation = rules.operation_begun_by(ticket)
        try:
            if not joined and self.combine and sql.dialect.combines(connection):
                return self._insert_and_read(connection, ticket, operation)
            if not sql.dialect.returns:
                self._write(connection, sql.insert(ticket, operation, joined=joined))
            elif (row := self._row(connection, sql.insert(ticket, operation, joined=joined))) is not None:
                return sql.born(ticket, operation, row, connection)
        except IntegrityError as error:
            if not database_errors.duplicate(error):  # MySQL reports an existing key this way
                raise
        except Error as error:
            # The row is locked by its owner, or a caller's transaction has inserted the key and is still open.
            if joined or not database_errors.lost_race(error):
                raise
            record = self._read(connection, sql.select(ticket.id))
            if record is None:
                raise
            return record
        return self._read(connection, sql.select(ticket.id, joined=joined))

    def _insert_and_read(self, connection: BaseDatabaseWrapper, ticket: Ticket, operation: UUID) -> Record | None:
        """Insert the record and, in the same trip, read the one that is there."""
        sql = self._statements
        (inserting, new), (reading, known) = sql.insert(ticket, operation, joined=False), sql.select(ticket.id)
        with connection.cursor() as cursor:
            cursor.execute(f"{inserting}; {reading}", [*new, *known])
            row: tuple[Any, ...] | None = cursor.fetchone()
            while row is None and cursor.nextset():
                row = cursor.fetchone()
        if row is None:
            return None
        # A wrapper of the project may have moved the cursor to the last result, which has the new row, too.
        made = len(row) == len(sql.made)
        return sql.born(ticket, operation, row, connection) if made else sql.record(row, connection)

    # -------------------------------------------------------------------------------------------------------- guard

    @contextmanager
    def guard(self, ticket: Ticket, *, takeover: bool = False) -> Iterator[Guard]:
        """See BaseStore.guard(). Raises `OutcomeUnknown` if the connection breaks during COMMIT."""
        if ticket.guarantee is not Guarantee.ATOMIC:
            yield Guard()
            return
        held, mine = frozenset(one for one in ACTIVE_GUARDS.get() if not one.ended), ActiveGuard(self.using, ticket.id)
        if any(one.name == mine.name for one in held):
            yield Guard(committed=False)  # our own caller holds it
            return
        connection, block = self._connection, offered(self.using)
        mine.transaction = self._own_transaction(connection) if block is None else None
        guard = TransactionGuard(connection, self._statements.dialect, block=block, own=mine.transaction)
        undone, outermost = False, block is None and not connection.in_atomic_block
        try:
            with ExitStack() as transaction_ends:
                with translated, self._statements.dialect.impatient(connection) if takeover else nullcontext():
                    if block is not None:
                        transaction_ends.enter_context(block.taken_over())
                    if block is None:
                        transaction_ends.enter_context(mine.transaction or transaction.atomic(using=self.using))
                    with guard.locking():
                        guard.record, guard.transaction_id = self._lock(mine.transaction, ticket, takeover=takeover)
                transaction_ends.enter_context(guard.watch())
                ACTIVE_GUARDS.set(held | {mine})
                try:
                    yield guard
                    undone = outermost and connection.needs_rollback
                finally:
                    mine.ended, mine.transaction = True, None
                    ACTIVE_GUARDS.set(held)  # not reset(): under ASGI the guard may end in another copy of the context
            guard.left()
        except TransactionLost:
            guard.log_loss()
            raise
        except Error as error:
            if undone:  # the transaction ended with its connection, and only another connection could not be made
                return
            if guard.keeps:  # Django's savepoint in a caller's transaction is gone, with all that followed it
                raise TransactionLost from error
            if not guard.committed and database_errors.connection_lost(error):
                raise OutcomeUnknown from error
            raise

    def _own_transaction(self, connection: BaseDatabaseWrapper) -> WorkTransaction | None:
        """Return the transaction that begins with the lock and settles with its COMMIT, if there can be one here."""
        with translated:
            if not self.combine or connection.in_atomic_block or not connection.get_autocommit():
                return None
            return self._statements.dialect.own_transaction(connection)

    def _lock(self, own: WorkTransaction | None, ticket: Ticket, *, takeover: bool) -> tuple[Record | None, str | None]:
        """Return the locked row, and the transaction's id if the database has one."""
        sql, connection = self._statements, self._connection
        locks = connection.features.has_select_for_update
        bound = sql.lock(ticket, takeover=takeover) if locks else sql.touch(ticket)
        row = self._row(connection, bound) if own is None else own.lock(bound)
        if not locks and not sql.dialect.returns:
            row = self._row(connection, sql.select(ticket.id))
        if row is None:
            return None, None
        if not sql.dialect.transaction_id:
            return sql.record(row, connection), None
        return sql.record(row[:-1], connection), row[-1]

    def wait(self, ticket: Ticket, *, seconds: float) -> None:
        """Wait for the row's lock, which an `atomic` owner holds until its COMMIT: no polling, one trip per waiter."""
        connection = self._connection
        bound = self._statements.wait(ticket, seconds)
        if ticket.guarantee is not Guarantee.ATOMIC or connection.in_atomic_block or bound is None:
            return
        with suppress(LostRace), translated:  # a lost race: the time ran out first
            self._row(connection, bound)

    # ----------------------------------------------------------------------------------------------- settle, purge

    def settle(self, ticket: Ticket, settlement: Settlement) -> bool:
        """See BaseStore.settle(). Inside a guard that settles with its COMMIT, that one finds out whether it was ours."""
        bound = self._statements.settle(ticket, settlement)
        for active in ACTIVE_GUARDS.get():
            if active.name == (self.using, ticket.id) and active.transaction is not None and not active.ended:
                active.transaction.settle_at_commit(bound)
                return True
        with translated:
            return self._write(self._connection, bound) == 1

    async def asettle(self, ticket: Ticket, settlement: Settlement) -> bool:
        """See settle()."""
        return await in_thread(self.settle, ticket, settlement, close=self.close)

    def renew(self, tickets: Sequence[Ticket]) -> set[UUID]:
        """See BaseStore.renew(). If a table is gone, raises; the error's `renewed` has the tokens of the others."""
        tables: defaultdict[str | None, list[Ticket]] = defaultdict(list)
        for ticket in tickets:
            tables[ticket.location].append(ticket)
        owners: set[UUID] = set()
        failed: IdempotencyError | None = None
        for together in tables.values():
            try:
                with translated:
                    owners |= self._renewed_together(self._connection, together)
            except IdempotencyError as error:
                failed = error
        if failed is not None:
            failed.renewed = owners
            raise failed
        return owners

    def _renewed_together(self, connection: BaseDatabaseWrapper, tickets: Sequence[Ticket]) -> set[UUID]:
        owners = {ticket.owner for ticket in tickets}
        if self._renewed(connection, tickets) == len(owners):  # nearly always: one trip
            return owners
        with connection.cursor() as cursor:
            cursor.execute(*self._statements.owners(tickets))
            return owners & {self._statements.owner(row) for row in cursor.fetchall()}

    def _renewed(self, connection: BaseDatabaseWrapper, tickets: Sequence[Ticket]) -> int:
        """Renew them together; one by one if a row is locked. A locked row cannot be taken over meanwhile."""
        try:
            return self._write(connection, self._statements.renew(tickets))
        except Error as error:
            if not database_errors.lost_race(error):
                raise
            return sum(self._renewed(connection, [ticket]) for ticket in tickets) if len(tickets) > 1 else 0

    @contextmanager
    def apart(self) -> Iterator[None]:
        """See BaseStore.apart(). Requests may hold every connection of a pool until their leases are renewed."""
        before, own = self._connection, connections.create_connection(self.using)
        options = {name: value for name, value in own.settings_dict["OPTIONS"].items() if name != "pool"}
        own.settings_dict = {**own.settings_dict, "OPTIONS": options}
        connections[self.using] = own
        try:
            yield
        finally:
            connections[self.using] = before
            with suppress(Exception):
                own.close()

    def close(self) -> None:
        self._connection.close()

    def purge(self, *, limit: int, since: datetime | None = None) -> Purged:
        from .purge import purge  # not above: loads the model

        with translated:
            return purge(self._connection, self._statements.dialect, limit=limit, since=since)

    def scan(self, *, size: int = 1000, bodies: bool = False) -> Iterator[Scanned]:
        """See BaseStore.scan(). In the order of `purge_at`, which is about the order in which the rows were made."""
        after: tuple[datetime, UUID] | None = None
        while True:
            with translated, self._connection.cursor() as cursor:
                cursor.execute(*self._statements.scan(after, size, bodies=bodies))
                rows = cursor.fetchall()
            records, unreadable = self._statements.records(rows, self._connection)
            yield Scanned(records=records, unreadable=unreadable)
            if len(rows) < size:
                break
            after = self._statements.position(rows[-1], self._connection)

    def add_repeats(self, batch: Sequence[Counted]) -> None:
        from .repeats import add  # not above: loads the model

        with translated:
            add(self._connection.alias, batch)

    def repeats(self, record_id: UUID) -> Repeats | None:
        from .repeats import of  # not above: loads the model

        with translated:
            return of(self._connection.alias, record_id)

    def size(self) -> int | None:
        with translated, self._connection.cursor() as cursor:
            return self._statements.dialect.size(cursor, self._statements.table)

    def get(self, record_id: UUID) -> Record | None:
        with translated:
            return self._read(self._connection, self._statements.select(record_id))

    def after_commit(self, call: Callable[[], None]) -> None:
        transaction.on_commit(call, using=self.using, robust=True)

    def beside(self) -> BaseDatabaseWrapper | None:
        return beside(self._connection)

    # ----------------------------------------------------------------------------------------------- for an operator

    def release(self, record_id: UUID, *, audit: Audit) -> Intervention:
        """Free a key by hand, unless it is held. `audit` is called in the same transaction."""
        from .interventions import release  # not above: loads the model

        with translated:
            return release(self.guard, self._connection, record_id, audit)

    def expire(self, record_id: UUID, *, audit: Audit) -> Intervention:
        """Expire a record now, unless it is held. `audit` is called in the same transaction."""
        from .interventions import expire  # not above: loads the model

        with translated:
            return expire(self.guard, self._connection, record_id, audit)

    def erase(self, record_id: UUID, *, audit: Audit) -> Intervention:
        """See BaseStore.erase(). `audit` is called in the same transaction."""
        from .interventions import erase  # not above: loads the model

        with translated:
            return erase(self.guard, self._connection, record_id, audit)

    def forget(self, record_id: UUID, *, audit: Audit) -> Intervention:
        """See BaseStore.forget(). `audit` is called in the same transaction."""
        from .interventions import forget  # not above: loads the model

        with translated:
            return forget(self.guard, self._connection, record_id, audit)

    def count_due(self, *, limit: int) -> int:
        """Count what a purge would delete, up to `limit`."""
        from .interventions import count_due  # not above: loads the model

        with translated:
            return count_due(self._connection, limit)

    # ------------------------------------------------------------------------------------------------------ plumbing

    @property
    def _connection(self) -> BaseDatabaseWrapper:
        return connections[self.using]

    @cached_property
    def _statements(self) -> Statements:
        from .statements import Statements  # not above: loads the model, and settings may name this class earlier

        with translated:
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
