"""The guard of `atomic`: the transaction of the work, which begins with the row's lock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING

from django.db import Error, connections, transaction

from ...core.records import Guarantee, Record, Ticket
from ...errors import OutcomeUnknown, TransactionLost
from ..base import Guard
from ..blocks import offered
from . import database_errors
from .active_guards import ACTIVE_GUARDS, ActiveGuard
from .executing import fetched
from .transaction_guard import TransactionGuard
from .translating import translated

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

    from .dialects.transactions import WorkTransaction
    from .statements import Statements


@contextmanager
def guarded(sql: Statements, using: str, ticket: Ticket, *, takeover: bool, combine: bool) -> Iterator[Guard]:
    """See BaseStore.guard(). `combine`: our own transaction settles with its COMMIT, where the driver can."""
    if ticket.guarantee is not Guarantee.ATOMIC:
        yield Guard()
        return
    held, mine = frozenset(one for one in ACTIVE_GUARDS.get() if not one.ended), ActiveGuard(using, ticket.id)
    if any(one.name == mine.name for one in held):
        yield Guard(committed=False)  # our own caller holds it
        return
    connection, block = connections[using], offered(using)
    mine.transaction = _own_transaction(sql, connection, combine=combine) if block is None else None
    guard = TransactionGuard(connection, sql.dialect, block=block, own=mine.transaction)
    undone, outermost = False, block is None and not connection.in_atomic_block
    try:
        with ExitStack() as transaction_ends:
            with translated(using), sql.dialect.impatient(connection) if takeover else nullcontext():
                if block is None:
                    transaction_ends.enter_context(mine.transaction or transaction.atomic(using=using))
                else:
                    transaction_ends.enter_context(block.taken_over())
                with guard.locking() if block is not None else nullcontext():
                    guard.record, guard.transaction_id = _lock(
                        sql, connection, mine.transaction, ticket, takeover=takeover
                    )
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


def _own_transaction(sql: Statements, connection: BaseDatabaseWrapper, *, combine: bool) -> WorkTransaction | None:
    """Return the transaction that begins with the lock and settles with its COMMIT, if there can be one here."""
    with translated(connection.alias):
        if not combine or connection.in_atomic_block or not connection.get_autocommit():
            return None
        return sql.dialect.own_transaction(connection)


def _lock(
    sql: Statements, connection: BaseDatabaseWrapper, own: WorkTransaction | None, ticket: Ticket, *, takeover: bool
) -> tuple[Record | None, str | None]:
    """Return the locked row, and the transaction's id if the database has one."""
    locks = connection.features.has_select_for_update
    bound = sql.lock(ticket, takeover=takeover) if locks else sql.touch(ticket)
    row = fetched(connection, bound) if own is None else own.lock(bound)
    if not locks and not sql.dialect.returns:
        row = fetched(connection, sql.select(ticket.id))
    if row is None:
        return None, None
    if not sql.dialect.transaction_id:
        return sql.record(row, connection), None
    return sql.record(row[:-1], connection), row[-1]
