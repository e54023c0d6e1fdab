"""A claim: an INSERT that never waits for an owner, the row that is there, or a takeover."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db import Error, IntegrityError

from ...core import rules
from ...core.records import Guarantee, Record, Ticket
from ...errors import ConfigurationError, LostRace
from . import database_errors
from .executing import fetched, written
from .translating import translated

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

    from .dialects.transactions import Bound
    from .statements import Statements


def claim(sql: Statements, connection: BaseDatabaseWrapper, ticket: Ticket, *, combine: bool) -> Record:
    """See BaseStore.claim(). `combine`: one trip inserts and reads, where the driver can."""
    joined = connection.in_atomic_block
    with translated(connection.alias), sql.dialect.joining(connection) if joined else nullcontext():
        if not joined:
            _require_autocommit(connection)
        run: rules.Execute | None = None
        for _ in range(3):
            record = _insert_or_read(sql, connection, ticket, joined=joined, combine=combine)
            if record is None:
                continue  # purged between two statements: try again
            if run is not None and rules.owned(record, ticket):
                return record._replace(taken=run.takeover, joined=joined)
            if ticket.guarantee is Guarantee.ATOMIC or not rules.takeable(record, ticket):
                return record._replace(joined=True) if joined else record
            # Takeover, compared with what was read:   owner |--- lease ---|  (silent)
            #                                          we                        |--- lease ---|
            run = rules.succession(record)
            taking = sql.take(ticket, record, run, joined=joined)
            written(connection, taking)
    raise LostRace


def _require_autocommit(connection: BaseDatabaseWrapper) -> None:
    if connection.get_autocommit():
        return
    raise ConfigurationError(
        f"The connection {connection.alias!r} is not in autocommit, so nobody else would see a claim on it. "
        'Take "AUTOCOMMIT": False out of DATABASES, and leave set_autocommit(False) to atomic().'
    )


def _insert_or_read(
    sql: Statements, connection: BaseDatabaseWrapper, ticket: Ticket, *, joined: bool, combine: bool
) -> Record | None:
    record = _read(sql, connection, sql.select(ticket.id)) if sql.dialect.reads_first else None
    if record is not None:
        return record
    operation = rules.operation_begun_by(ticket)
    try:
        if not joined and combine and sql.dialect.combines(connection):
            return _insert_and_read(sql, connection, ticket, operation)
        if not sql.dialect.returns:
            written(connection, sql.insert(ticket, operation, joined=joined))
        elif (row := fetched(connection, sql.insert(ticket, operation, joined=joined))) is not None:
            return sql.born(ticket, operation, row, connection)
    except IntegrityError as error:
        if not database_errors.duplicate(error):  # MySQL reports an existing key this way
            raise
    except Error as error:
        # The row is locked by its owner, or a caller's transaction has inserted the key and is still open.
        if joined or not database_errors.lost_race(error):
            raise
        record = _read(sql, connection, sql.select(ticket.id))
        if record is None:
            raise
        return record
    return _read(sql, connection, sql.select(ticket.id, joined=joined))


def _insert_and_read(
    sql: Statements, connection: BaseDatabaseWrapper, ticket: Ticket, operation: UUID
) -> Record | None:
    """Insert the record and, in the same trip, read the one that is there."""
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


def _read(sql: Statements, connection: BaseDatabaseWrapper, bound: Bound) -> Record | None:
    row = fetched(connection, bound)
    return None if row is None else sql.record(row, connection)
