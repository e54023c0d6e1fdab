"""A lease refuses to run in an open transaction: a rollback would leave its record, or take it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asgiref.sync import AsyncToSync, sync_to_async
from django.db import connections

from ..errors import LeaseInTransaction, TransactionLeftOpen
from ..stores.base import Guard
from ..stores.interrupted import in_transaction

if TYPE_CHECKING:
    from ..engine.lease import LeaseOperation


def in_open_transaction(using: str) -> bool:
    """Has the project opened a transaction of this database?

    That of a test case does not count: production has none.
    """
    connection = connections[using]
    return (
        in_transaction(connection)
        if connection.in_atomic_block
        else not connection.get_autocommit()
    )


def refuse_open_transactions() -> None:
    """Raise `LeaseInTransaction` inside a transaction that is not a test's, as
    `atomic(durable=True)` would.
    """
    for connection in connections.all(initialized_only=True):  # of this thread, or task
        if connection.atomic_blocks and in_transaction(connection):
            refusal = LeaseInTransaction()
            for guard in connection.atomic_blocks:
                if isinstance(guard, Guard):
                    guard.refuse(refusal)
            raise refusal
        if connection.connection is not None and not (
            connection.autocommit or connection.in_atomic_block
        ):
            raise LeaseInTransaction(
                f"The connection {connection.alias!r} is not in autocommit: a call with "
                'guarantee="lease" would be recorded '
                'although its writes there may be rolled back. Take "AUTOCOMMIT": False '
                "out of DATABASES, and leave "
                "set_autocommit(False) to atomic()."
            )


def refuse_left_open(operation: LeaseOperation, *, but: str | None) -> None:
    """Raise `TransactionLeftOpen` if the work of a lease has left a transaction open, which is
    rolled back then.

    Asked of each database of this thread except `but`, that of the record: its settle asks itself.
    """
    from ..stores.orm.store import roll_back_left_open  # not above: for leases only

    found: TransactionLeftOpen | None = None
    for connection in connections.all(initialized_only=True):
        if connection.alias == but or not roll_back_left_open(connection):
            continue
        found = TransactionLeftOpen()
        found.using = connection.alias
        operation.log_left_open(found)
    if found is not None:  # after all of them: none stays open for the next request
        raise found


async def arefuse_open_transactions() -> None:
    """See refuse_open_transactions().

    Transactions are per thread: one of sync code that waits is checked there.
    """
    if getattr(AsyncToSync.executors, "current", None) is not None:  # what sync_to_async() looks at
        await sync_to_async(refuse_open_transactions)()
