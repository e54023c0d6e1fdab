"""Stores, and points in them at which a test can kill, stop or hold the process.

The package itself is not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from django_idempotency import signals
from django_idempotency.core.records import Guarantee, Record, Settlement, Ticket
from django_idempotency.engine.operation import Operation
from django_idempotency.stores.base import BaseStore, Guard
from django_idempotency.stores.dynamodb import DynamoDBStore
from django_idempotency.stores.orm import ORMStore
from django_idempotency.stores.orm.guard import TransactionGuard
from django_idempotency.stores.redis import RedisStore

from .plans import news, reach


class Faulty(BaseStore):
    """The points that every store has."""

    def claim(self, ticket: Ticket) -> Record:
        record = super().claim(ticket)  # type: ignore[safe-super]  # of the store beside it
        reach("claimed", ticket.key)
        return record

    def settle(self, ticket: Ticket, settlement: Settlement) -> bool:
        reach("settling", ticket.key)
        settled = super().settle(ticket, settlement)  # type: ignore[safe-super]  # the same
        reach("settled", ticket.key, session=self.session())
        return settled

    def session(self) -> int:
        return 0


class FaultRedisStore(Faulty, RedisStore):
    pass


class FaultDynamoDBStore(Faulty, DynamoDBStore):
    pass


class FaultStore(Faulty, ORMStore):
    @contextmanager
    def guard(
        self, ticket: Ticket, *, takeover: bool = False, claimed: Record | None = None
    ) -> Iterator[Guard]:
        if ticket.guarantee is not Guarantee.ATOMIC:
            with super().guard(ticket, takeover=takeover, claimed=claimed) as guard:
                yield guard
            return
        connection = self._connection
        with ExitStack() as ends:
            if connection.in_atomic_block:  # whose COMMIT follows the guard's end
                watch_commit(connection, connection, ticket.key)
            else:
                ends.enter_context(commit_watched(connection, ticket.key))
            guard = ends.enter_context(super().guard(ticket, takeover=takeover, claimed=claimed))
            if isinstance(guard, TransactionGuard) and guard._own is not None:
                watch_commit(guard._own, connection, ticket.key)
            reach("guarded", ticket.key, session=session(connection))
            ends.enter_context(connection.execute_wrapper(partial(around_writes, ticket.key)))
            yield guard

    def commit(self, guard: Guard, ticket: Ticket, settlement: Settlement) -> bool:
        def end(*error: Any) -> None:
            reach("settled", ticket.key, session=self.session())
            ended(*error)

        reach("settling", ticket.key)
        ended = guard.__exit__
        guard.__exit__ = end  # type: ignore[method-assign]
        return super().commit(guard, ticket, settlement)

    def session(self) -> int:
        return session(self._connection)


def around_writes(key: str, execute: Any, sql: str, *rest: Any) -> Any:
    """Reach the points at the first write of a charge, its effect, and at the last one, its row."""
    connection = rest[-1]["connection"]
    if sql.startswith("INSERT INTO") and "payments_effect" in sql:
        reach("writing", key, session=session(connection))
    done = execute(sql, *rest)
    if sql.startswith("INSERT INTO") and "payments_charge" in sql:
        reach("written", key, session=session(connection))
    return done


@contextmanager
def commit_watched(connection: BaseDatabaseWrapper, key: str) -> Iterator[None]:
    really = watch_commit(connection, connection, key)
    try:
        yield
    finally:
        connection._commit = really  # type: ignore[attr-defined]


def watch_commit(owner: Any, connection: BaseDatabaseWrapper, key: str) -> Callable[..., None]:
    """Reach the points around the next COMMIT, which is Django's own or that of the guard's
    transaction.
    """

    def commit(*args: Any) -> None:
        owner._commit = really
        reach("committing", key, session=session(connection))
        really(*args)
        reach("committed", key, session=session(connection))

    really: Callable[..., None] = owner._commit
    owner._commit = commit
    return really


def session(connection: BaseDatabaseWrapper) -> int:
    """Return the server's id for this session; 0 if there is no server, or none any more."""
    driver = connection.connection
    if driver is None or connection.vendor == "sqlite":
        return 0
    return int(driver.info.backend_pid if connection.vendor == "postgresql" else driver.thread_id())


def note_loss(operation: Operation, **_: Any) -> None:
    news(operation.ticket.key, "lost").touch()


signals.lost.connect(note_loss)
