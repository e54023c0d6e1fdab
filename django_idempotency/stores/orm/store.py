"""Records in a Django database: the default store, and the one that supports `atomic`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.core.checks import CheckMessage
from django.db import DEFAULT_DB_ALIAS, Error, IntegrityError, connections, transaction

from ...core import rules
from ...core.hashing import first_operation
from ...core.interventions import Intervention, Wanted
from ...core.records import Guarantee, Record, Settlement, Ticket
from ...errors import (
    ConfigurationError,
    IdempotencyError,
    InProgress,
    LostRace,
    TransactionLeftOpen,
)
from ..base import Audit, BaseStore, Guard, Purged, Scanned
from ..interrupted import Before, drop_if_cut, in_transaction
from . import database_errors
from .database_errors import translate, translated
from .guard import ACTIVE_GUARDS, InnerGuard, TransactionGuard, protected

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

    from ...core.records import Counted, Repeats
    from .statements import Statements


class ORMStore(BaseStore):
    """Records in the database `using`.

    `atomic` covers the writes on that database and no other. SQLite has one writer: requests with
    different keys queue for it.

    A claim is as durable as the project's own commits before the work runs. With
    `durable_claims=False` a claim of `atomic` is committed asynchronously on PostgreSQL, and the
    work's own COMMIT flushes it. That saves a flush, and is for work that writes in this database
    only: after a crash of the server an earlier attempt may be forgotten.
    """

    supports_atomic = True
    counts_repeats = True

    def __init__(
        self, *, using: str = DEFAULT_DB_ALIAS, combine: bool = True, durable_claims: bool = True
    ) -> None:
        if not isinstance(durable_claims, bool):
            raise TypeError(f'"durable_claims" is True or False, not {durable_claims!r}.')
        self.using = self.rows_in = using
        self.combine = combine
        self.durable_claims = durable_claims

    def check(
        self, alias: str, *, deploy: bool = False, copies_only: bool = False
    ) -> Iterable[CheckMessage]:
        """See BaseStore.check(). Here there is always a database to name."""
        from ..database_checks import check_database  # not above: a server needs no check
        from .checks import check_dialect, check_server

        if deploy:
            connection = connections[self.using]
            with connection.cursor() as cursor:
                return list(check_server(connection, cursor))
        return (
            *check_database(alias, self.using),
            *check_dialect(alias, self.using),
        )

    # ---------------------------------------------------------------------------------------- claim

    def claim(self, ticket: Ticket) -> Record:
        connection = connections[self.using]
        try:
            try:
                if connection.in_atomic_block:
                    return self._claim_inside(connection, ticket)
                if not connection.get_autocommit() or in_driver(connection):
                    raise ConfigurationError(
                        f"The connection {connection.alias!r} is not in autocommit, or a BEGIN "
                        "past Django is open on it, so nobody else would see a claim on it. Take "
                        '"AUTOCOMMIT": False out of DATABASES, and leave set_autocommit(False) '
                        "and BEGIN to atomic()."
                    )
                record = self._claim(connection, ticket, joined=False)
            except Error as error:
                sql = self._statements
                # An owner of this key was in the way, and not just anybody.
                if database_errors.lost_race(error) and sql.dialect.is_held(
                    connection, error, sql.probe(ticket.id)
                ):
                    raise InProgress from error
                translate(error, self.using)
        except BaseException as error:
            drop_if_cut(connection, error)
            raise
        if self.durable_claims or ticket.guarantee is not Guarantee.ATOMIC:
            return record
        return record._replace(durable=False)

    def _claim_inside(self, connection: BaseDatabaseWrapper, ticket: Ticket) -> Record:
        """Claim in a caller's transaction, whose savepoints are the caller's again whatever raises
        here.
        """
        durable = not in_transaction(connection)  # but in a test's
        before = Before(
            connection, True, len(connection.atomic_blocks), len(connection.savepoint_ids)
        )
        try:
            with (
                transaction.atomic(using=connection.alias),
                self._statements.dialect.joining(connection),
            ):
                return self._claim(connection, ticket, joined=True)._replace(
                    joined=True, durable=durable
                )
        except BaseException:
            before.restore()
            raise

    def _claim(self, connection: BaseDatabaseWrapper, ticket: Ticket, *, joined: bool) -> Record:
        """Insert the record without waiting for an owner, read the one that is there, or take it
        over.
        """
        run: rules.Execute | None = None
        try:
            for _ in range(3):
                record = self._insert_or_read(connection, ticket, joined=joined)
                if record is None:
                    continue  # purged between two statements: try again
                if run is not None and rules.owned(record, ticket):
                    return record._replace(taken=run.takeover)
                if ticket.guarantee is Guarantee.ATOMIC or not rules.takeable(record, ticket):
                    return record
                # Takeover, compared with what was read:   owner |--- lease ---|  (silent)
                #                                          we                        |--- lease ---|
                run = rules.succession(record)
                self._statements.written_soon(
                    connection, self._statements.take(ticket, record, run, joined=joined)
                )
        except BaseException as error:
            drop_if_cut(connection, error)  # before the end of a savepoint is sent
            raise
        raise LostRace

    def _insert_or_read(
        self, connection: BaseDatabaseWrapper, ticket: Ticket, *, joined: bool
    ) -> Record | None:
        sql = self._statements
        if (
            sql.dialect.reads_first
            and (row := sql.fetched(connection, (sql.reading, [ticket.id.hex]))) is not None
        ):
            return sql.record(row, connection)
        operation = first_operation(ticket)
        insert = sql.insert(ticket, operation, joined=joined)
        try:
            if (
                self.combine
                and not joined
                and not sql.dialect.reads_first
                and sql.dialect.combines(connection)
            ):
                return sql.inserted_or_read(connection, insert, ticket, operation)
            if not sql.dialect.returns:
                sql.written_soon(connection, insert)
            elif (row := sql.fetched(connection, insert)) is not None:
                return sql.born(ticket, operation, row, connection)
        except IntegrityError as error:
            if not database_errors.duplicate(error):  # MySQL reports an existing key this way
                raise
        except Error as error:
            # The row is locked by its owner, or a caller's transaction has inserted the key and is
            # still open.
            if joined or not database_errors.lost_race(error):
                raise
            row = sql.fetched(connection, sql.select(ticket.id))
            if row is None:
                raise
            return sql.record(row, connection)
        row = sql.fetched(connection, sql.select(ticket.id, joined=joined))
        return None if row is None else sql.record(row, connection)

    # ---------------------------------------------------------------------------------------- guard

    def guard(
        self, ticket: Ticket, *, takeover: bool = False, claimed: Record | None = None
    ) -> AbstractContextManager[Guard]:
        """See BaseStore.guard(). Raises `OutcomeUnknown` if the connection breaks during COMMIT."""
        if ticket.guarantee is not Guarantee.ATOMIC:
            return Guard()
        for one in ACTIVE_GUARDS.get():
            if not one.ended and one.name == (self.using, ticket.id):
                return InnerGuard()
        return TransactionGuard(
            self._statements,
            self.using,
            ticket,
            takeover=takeover,
            claimed=claimed,
            combine=self.combine,
        )

    def wait(self, ticket: Ticket, *, seconds: float) -> None:
        """Wait for the row's lock, which an `atomic` owner holds until its COMMIT: no polling, one
        trip per waiter.
        """
        connection = self._connection
        bound = self._statements.wait(ticket, seconds)
        if ticket.guarantee is not Guarantee.ATOMIC or connection.in_atomic_block or bound is None:
            return
        with suppress(LostRace), translated(self.using):  # a lost race: the time ran out first
            self._statements.fetched(connection, bound)

    # -------------------------------------------------------------------------------- settle, purge

    def commit(self, guard: Guard, ticket: Ticket, settlement: Settlement) -> bool:
        """See BaseStore.commit(), and TransactionGuard.commit() for what it raises."""
        assert isinstance(guard, TransactionGuard), "this store has made it"
        guard.commit(self._statements.settle(ticket, settlement))
        return True

    def settle(self, ticket: Ticket, settlement: Settlement) -> bool:
        connection = connections[self.using]
        if settlement.alone:
            refuse_left_open(connection)
        bound = self._statements.settle(ticket, settlement)
        with translated(self.using):
            return self._statements.written(connection, bound) == 1

    def renew(self, tickets: Sequence[Ticket]) -> set[UUID]:
        """See BaseStore.renew().

        If a table is gone, raises; the error's `renewed` has the tokens of the others.
        """
        tables: defaultdict[str | None, list[Ticket]] = defaultdict(list)
        for ticket in tickets:
            tables[ticket.location].append(ticket)
        owners: set[UUID] = set()
        failed: IdempotencyError | None = None
        for together in tables.values():
            try:
                with translated(self.using):
                    owners |= self._renewed(together)
            except IdempotencyError as error:
                failed = error
        if failed is not None:
            failed.renewed = owners
            raise failed
        return owners

    def _renewed(self, tickets: Sequence[Ticket]) -> set[UUID]:
        """Renew leases whose records are in one table.

        Return the tokens of those that are still owners.
        """
        owners = {ticket.owner for ticket in tickets}
        if self._count_renewed(tickets) == len(owners):  # nearly always: one trip
            return owners
        return owners & self._statements.owners(self._connection, tickets)

    def _count_renewed(self, tickets: Sequence[Ticket]) -> int:
        """Renew them together; one by one if a row is locked.

        A locked row cannot be taken over meanwhile.
        """
        try:
            return self._statements.written_soon(self._connection, self._statements.renew(tickets))
        except Error as error:
            if not database_errors.lost_race(error):
                raise
            return (
                sum(self._count_renewed([ticket]) for ticket in tickets) if len(tickets) > 1 else 0
            )

    def savepoint(self) -> AbstractContextManager[None]:
        if not self._connection.in_atomic_block:
            return nullcontext()
        return protected(self.using)

    @contextmanager
    def apart(self) -> Iterator[None]:
        """See BaseStore.apart().

        Requests may hold every connection of a pool until their leases are renewed.
        """
        before = self._connection
        own = connections.create_connection(self.using)
        options = {
            name: value for name, value in own.settings_dict["OPTIONS"].items() if name != "pool"
        }
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

        with translated(self.using):
            return purge(self._connection, self._statements.dialect, limit=limit, since=since)

    def scan(self, *, size: int = 1000, bodies: bool = False) -> Iterator[Scanned]:
        """See BaseStore.scan().

        In the order of `purge_at`, which is about the order in which the rows were made.
        """
        from .statements import position, records  # not above: loads the model

        after: tuple[datetime, UUID] | None = None
        while True:
            with translated(self.using), self._connection.cursor() as cursor:
                cursor.execute(*self._statements.scan(after, size, bodies=bodies))
                rows = cursor.fetchall()
            found, unreadable = records(rows, self._connection)
            yield Scanned(records=found, unreadable=unreadable)
            if len(rows) < size:
                break
            after = position(rows[-1], self._connection)

    def add_repeats(self, batch: Sequence[Counted]) -> None:
        from .repeats import add  # not above: loads the model

        with translated(self.using):
            add(self._connection.alias, batch)

    def repeats(self, record_id: UUID) -> Repeats | None:
        from .repeats import of  # not above: loads the model

        with translated(self.using):
            return of(self._connection.alias, record_id)

    def size(self) -> int | None:
        with translated(self.using), self._connection.cursor() as cursor:
            return self._statements.dialect.size(cursor, self._statements.table)

    def get(self, record_id: UUID) -> Record | None:
        with translated(self.using):
            row = self._statements.fetched(self._connection, self._statements.select(record_id))
            return None if row is None else self._statements.record(row, self._connection)

    def after_commit(self, call: Callable[[], None]) -> None:
        transaction.on_commit(call, using=self.using, robust=True)

    # ------------------------------------------------------------------------------ for an operator

    def change(self, record_id: UUID, wanted: Wanted, *, audit: Audit) -> Intervention:
        """See BaseStore.change(). Here `audit` is called in the same transaction."""
        from .interventions import intervene  # not above: loads the model

        with translated(self.using):
            return intervene(self.guard, self._connection, record_id, wanted, audit)

    def count_due(self, *, limit: int) -> int:
        """Count what a purge would delete, up to `limit`."""
        from .purge import count_due  # not above: loads the model

        with translated(self.using):
            return count_due(self._connection, limit)

    # ------------------------------------------------------------------------------------- plumbing

    @property
    def _connection(self) -> BaseDatabaseWrapper:
        return connections[self.using]

    @cached_property
    def _statements(self) -> Statements:
        # Not above: loads the model, and settings may name this class earlier.
        from .statements import (
            Statements,
        )

        with translated(self.using):
            return Statements(
                self._connection, combine=self.combine, durable_claims=self.durable_claims
            )


# ------------------------------------------------------------- transactions that a work leaves open

# Django ends a request's connection, or leaves it to the next request, without a COMMIT: after
# set_autocommit(False), after a BEGIN past Django, or in an atomic() block that was entered and
# never left.

#: libpq's number for no transaction, and for a connection that is lost.
_IDLE = 0
_LOST = 4
#: In the status that MySQL and MariaDB send with each response: a transaction is open.
_IN_TRANSACTION = 1


def in_driver(connection: BaseDatabaseWrapper) -> bool | None:
    """Is a transaction open on a connection, whoever began it? `None`: its driver cannot say.

    In autocommit it asks no server.
    """
    driver: Any = connection.connection
    if driver is None:
        return False
    if hasattr(driver, "in_transaction"):  # sqlite3
        return bool(driver.in_transaction)
    # PyMySQL, which reads it from a response without rows only.
    if hasattr(driver, "server_status"):
        return bool(driver.server_status & _IN_TRANSACTION) or (
            not connection.autocommit and _asked(driver)
        )
    # psycopg 3 and 2
    status = getattr(getattr(driver, "info", None), "transaction_status", None)
    return None if status is None else int(status) not in {_IDLE, _LOST}


def _asked(driver: Any) -> bool:
    """Let the server say if a transaction is open on a connection of PyMySQL.

    If it does not respond, it was.
    """
    try:
        driver.ping(reconnect=False)
    except Exception:  # noqa: BLE001 - any of the driver's
        return True
    return bool(driver.server_status & _IN_TRANSACTION)


def roll_back_left_open(connection: BaseDatabaseWrapper) -> bool:
    """Roll back a transaction that was left open, and return the connection to autocommit.

    Was there one?

    The block of a test case is none. Called where no guard and no caller has a transaction open.
    """
    if connection.connection is None:
        return False
    if connection.in_atomic_block:
        return _leave_blocks(connection)
    manual = not connection.autocommit
    found = in_driver(connection)
    if not found and not manual:
        return False
    if found is not False:
        _roll_back(connection)
    if manual and connection.connection is not None:
        connection.set_autocommit(True)
    return found is not False


def refuse_left_open(connection: BaseDatabaseWrapper) -> None:
    """Raise `TransactionLeftOpen`, after the rollback, if the work has left a transaction open on a
    connection.
    """
    if roll_back_left_open(connection):
        left = TransactionLeftOpen()
        left.using = connection.alias
        raise left


def _leave_blocks(connection: BaseDatabaseWrapper) -> bool:
    """Leave the atomic() blocks that were entered and not left, down to those of a test case."""
    found = False
    while connection.in_atomic_block and not getattr(
        connection.atomic_blocks[-1], "_from_testcase", False
    ):
        left = TransactionLeftOpen()
        connection.atomic_blocks[-1].__exit__(type(left), left, None)
        found = True
    return found


def _roll_back(connection: BaseDatabaseWrapper) -> None:
    """Roll back. If that fails, nothing of the transaction stays, either."""
    driver: Any = connection.connection
    try:
        if not connection.autocommit:
            driver.rollback()
            return
        # Neither Django nor psycopg 2 knows of a transaction then.
        with closing(driver.cursor()) as cursor:
            cursor.execute("ROLLBACK")
    except Exception:  # noqa: BLE001 - any driver's error
        connection.close()
