"""The actors of these tests: calls under a key, other connections, and a worker that dies."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from django.db import connection, connections

from django_idempotency.core.conclusions import Ending, WorkResult
from django_idempotency.core.records import Guarantee, Outcome, Ticket
from django_idempotency.core.rules import Execute, Verdict
from django_idempotency.models import IdempotencyRecord
from django_idempotency.stores.base import BaseStore
from django_idempotency.stores.orm import ORMStore
from django_idempotency.testing.tickets import make_ticket
from testproject.payments.models import Effect
from tests.support.fakes import Listener, operation_of

Result = TypeVar("Result")

OUTCOME = Outcome(status=201, headers=(("Location", "/1/"),), body=b"{}")

not_sqlite = pytest.mark.skipif(
    "connection.vendor == 'sqlite'", reason="SQLite has one writer: it queues"
)


#: Statements commit, as on a server. Afterwards only our table and those of payments are emptied,
#: which is much faster than all of them.
committed = pytest.mark.django_db(
    transaction=True, available_apps=["django_idempotency", "testproject.payments"]
)


def atomic_ticket(**fields: Any) -> Ticket:
    """Make a ticket whose lease lapses as soon as it is claimed: only the row lock protects it."""
    return make_ticket(**{"guarantee": Guarantee.ATOMIC, "lease": 0, **fields})


#: The calls that this test has made in its own thread; conftest.py ends those that a failing test
#: has left open.
CALLS: list[Call] = []


@dataclass
class Call:
    """A request under a key, carried out like an entry point does."""

    ticket: Ticket = field(default_factory=atomic_ticket)
    store: BaseStore = field(default_factory=ORMStore)
    listener: Listener = field(default_factory=Listener)

    def __post_init__(self) -> None:
        self.operation = operation_of(self.store, self.ticket, self.listener)
        if threading.current_thread() is threading.main_thread():
            CALLS.append(self)

    def open(self) -> Verdict:
        verdict: Verdict = self.operation.open()
        return verdict

    def work(self) -> None:
        """Do what must happen once."""
        Effect.objects.create(
            label="work", idempotency_key=self.ticket.key, attempt=self.operation.attempt
        )

    def settle(self, ended: WorkResult = WorkResult.KEPT, **given: Any) -> None:
        succeeded = ended is not WorkResult.FAILED
        self.operation.settle(Ending(ended, OUTCOME, **{"succeeded": succeeded, **given}))

    def run(self, ended: WorkResult = WorkResult.KEPT) -> Verdict:
        """Carry the request out, if it may run."""
        verdict = self.open()
        if isinstance(verdict, Execute):
            self.work()
            self.settle(ended)
        return verdict


@contextmanager
def connected_otherwise(**settings: Any) -> Iterator[None]:
    """Reach the test database with other settings, in every thread.

    Connections that are open stay as they are.
    """
    before, declared = connections["default"], connections.settings["default"]
    connections.settings["default"] = {**declared, **settings}
    connections["default"] = connections.create_connection("default")
    try:
        yield
    finally:
        connections["default"].close()
        connections["default"] = before
        connections.settings["default"] = declared


def effects() -> int:
    return Effect.objects.count()


def row(ticket: Ticket) -> IdempotencyRecord:
    return IdempotencyRecord.objects.get(pk=ticket.id)


def elsewhere(act: Callable[[], Result]) -> Result:
    """Act in another thread and on another connection, and return the result."""
    (result,) = together([act])
    return result


def together(acts: list[Callable[[], Result]]) -> list[Result]:
    """Run each act in its own thread and on its own connection, all released at one moment."""
    start = threading.Barrier(len(acts))

    def run(act: Callable[[], Result]) -> Result:
        try:
            connection.ensure_connection()
            start.wait(timeout=30)
            return act()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(acts)) as pool:
        return [future.result(timeout=60) for future in [pool.submit(run, act) for act in acts]]


def unseen(sql: str) -> None:
    """Send a statement past Django and the guard, to the driver."""
    connection.connection.cursor().execute(sql)


def connection_id() -> int:
    """Return the id of this thread's connection, for `kill`."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_backend_pid()"
            if connection.vendor == "postgresql"
            else "SELECT CONNECTION_ID()"
        )
        return int(cursor.fetchone()[0])


def kill(victim: int) -> None:
    """End a connection from the server's side, and return when it is gone."""

    def act() -> None:
        with connection.cursor() as cursor:
            if connection.vendor == "postgresql":
                cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [victim])
                assert cursor.fetchone()[0] is True
                return
            cursor.execute(f"KILL CONNECTION {victim}")
            alive = 1
            while alive:  # InnoDB rolls back before the thread leaves the list
                cursor.execute(
                    "SELECT count(*) FROM information_schema.processlist WHERE id = %s", [victim]
                )
                alive = cursor.fetchone()[0]

    elsewhere(act)


def until_gone(backend: int) -> None:
    """Return when PostgreSQL has ended a session on its own."""

    def act() -> None:
        with connection.cursor() as cursor:
            alive = True
            while alive:
                cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE pid = %s", [backend])
                alive = cursor.fetchone()[0] > 0

    elsewhere(act)
