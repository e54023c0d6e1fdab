"""What waits for the whole table, behind an ALTER or a LOCK TABLE, waits for some seconds at most,
and says so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, connections, transaction

from django_idempotency.core.conclusions import WorkResult
from django_idempotency.core.records import Guarantee, Settlement, Status
from django_idempotency.core.rules import Contended, Execute
from django_idempotency.errors import LostRace, StoreUnavailable
from django_idempotency.stores.orm import ORMStore
from django_idempotency.testing.tickets import make_ticket
from tests.support.combining import KIND

from .helpers import Call, atomic_ticket, committed, elsewhere, not_sqlite

pytestmark = [
    committed,
    not_sqlite,
    pytest.mark.skipif(
        KIND == "postgresql, apart", reason="A statement that goes alone has no bound of ours"
    ),
]

LEASED = make_ticket(guarantee=Guarantee.LEASE, lease=30.0)
OTHER = UUID(int=9)
#: Seconds after which a test that would wait without end goes on, and fails.
RELEASED = 25.0


@contextmanager
def locked(*, mode: str = "ACCESS EXCLUSIVE") -> Iterator[None]:
    """Hold a lock of the table of records, in another session."""
    other = connections.create_connection("default")
    other.inc_thread_sharing()
    ending = threading.Event()
    with other.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(f"BEGIN; LOCK TABLE django_idempotency_record IN {mode} MODE")
        else:
            cursor.execute("LOCK TABLES django_idempotency_record WRITE")

    def release() -> None:
        ending.wait(RELEASED)
        other.close()

    releasing = threading.Thread(target=release)
    releasing.start()
    try:
        yield
        assert releasing.is_alive(), "it has waited until the lock was released"
    finally:
        ending.set()
        releasing.join()


def settlement() -> Settlement:
    return Settlement(
        status=Status.FREE, fence=LEASED.owner, attempt=1, digest=b"", operation=UUID(int=1)
    )


VERBS: dict[str, Callable[[ORMStore], Any]] = {
    "claim": lambda store: store.claim(make_ticket(key="new", guarantee=Guarantee.LEASE)),
    "claim, atomic": lambda store: store.claim(atomic_ticket(key="new")),
    "claim, known": lambda store: store.claim(LEASED._replace(owner=OTHER)),
    "settle": lambda store: store.settle(LEASED, settlement()),
    "guard": lambda store: store.guard(LEASED._replace(guarantee=Guarantee.ATOMIC)).__enter__(),
    "takeover": lambda store: store.guard(
        LEASED._replace(guarantee=Guarantee.ATOMIC), takeover=True
    ).__enter__(),
}


@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_waits_without_end_for_the_table(verb: str, store: ORMStore) -> None:
    """While the table is locked, each verb gives up: nothing of ours was written, and the
    connection can be used.
    """
    store.claim(LEASED)
    with locked(), pytest.raises((LostRace, StoreUnavailable)):
        VERBS[verb](store)
    assert store.claim(make_ticket(key="after")).attempt == 1


def test_renewing_gives_up(store: ORMStore) -> None:
    """A heartbeat that cannot renew goes on: it renews at its next beat."""
    store.claim(LEASED)
    with locked(), pytest.raises((LostRace, StoreUnavailable)):
        store.renew([LEASED])
    assert store.renew([LEASED]) == {LEASED.owner}


def test_a_lock_of_the_table_is_no_running_work() -> None:
    """Nobody is said to be running a key that nobody has claimed."""
    with locked():
        verdict = Call(make_ticket(key="fresh", guarantee=Guarantee.LEASE)).open()
    assert isinstance(verdict, Contended)


def test_an_alter_behind_a_long_view_does_not_hold_other_keys() -> None:
    """An ALTER waits for a view that runs, and all others for the ALTER: they are told to try
    again, and the view ends.
    """
    long = Call(atomic_ticket(key="long"))
    assert isinstance(long.open(), Execute)
    waiting = threading.Thread(target=alter)
    waiting.start()
    try:
        elsewhere(until_somebody_waits)
        assert isinstance(elsewhere(Call(atomic_ticket(key="other")).open), Contended)
        long.settle(WorkResult.KEPT)
    finally:
        waiting.join()
    assert long.listener.events == ["claimed", "completed"]


def alter() -> None:
    try:
        with connection.cursor() as cursor:
            cursor.execute(
                "ALTER TABLE django_idempotency_record ALTER COLUMN attempt SET DEFAULT 1"
            )
            cursor.execute(
                "ALTER TABLE django_idempotency_record ALTER COLUMN attempt DROP DEFAULT"
            )
    finally:
        connection.close()


def until_somebody_waits() -> None:
    waits = {
        "postgresql": "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = "
        "'django_idempotency_record'::regclass"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        "mysql": "SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE()"
        " AND state LIKE 'Waiting for table metadata lock'",
    }
    found = 0
    while not found:
        with connection.cursor() as cursor:
            cursor.execute(waits[connection.vendor])
            found = cursor.fetchone()[0]


@pytest.mark.skipif("connection.vendor != 'postgresql'", reason="lock_timeout is PostgreSQL's")
def test_the_work_keeps_its_own_lock_timeout() -> None:
    """The bound is for our statements: the work, and what follows it, find the one that the project
    has set.
    """

    def timeout() -> str:
        with connection.cursor() as cursor:
            cursor.execute("SHOW lock_timeout")
            return str(cursor.fetchone()[0])

    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '7s'")
    call = Call()
    call.open()
    seen = [timeout()]
    transaction.on_commit(lambda: seen.append(timeout()))
    call.settle()
    seen.append(timeout())
    with connection.cursor() as cursor:
        cursor.execute("RESET lock_timeout")
    assert seen == ["7s", "7s", "7s"]


@pytest.mark.skipif(
    "connection.vendor != 'postgresql'", reason="a MariaDB transaction keeps the table's lock"
)
def test_a_settle_behind_an_index_that_is_made() -> None:
    """CREATE INDEX does not wait for the view, whose settle waits for it: not without end, and then
    nothing was done.
    """
    call = Call()
    call.open()
    call.work()
    with locked(mode="SHARE"), pytest.raises(StoreUnavailable):
        call.settle()
