"""Our threads use connections that requests cannot exhaust, and look where the claim has put its
record.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from uuid import UUID

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import connection, connections

from django_idempotency.core.conclusions import Ending, WorkResult
from django_idempotency.core.records import Guarantee, Status, Ticket
from django_idempotency.core.rules import Execute, Replay
from django_idempotency.engine import threads
from django_idempotency.engine.heartbeat import Heartbeat, heartbeat
from django_idempotency.engine.lease import LeaseOperation
from django_idempotency.errors import StoreUnavailable
from django_idempotency.models import IdempotencyRecord
from django_idempotency.stores.orm import ORMStore
from django_idempotency.testing.tickets import make_ticket
from tests.support.fakes import Listener

from .helpers import OUTCOME, Call, atomic_ticket, committed, elsewhere

pytestmark = committed
on_postgresql = pytest.mark.skipif(
    "connection.vendor != 'postgresql'", reason="PostgreSQL has schemas, and Django a pool"
)

LEASED = make_ticket(guarantee=Guarantee.LEASE, lease=30.0)
OTHER = UUID(int=7)
TENANTS = ("tenant_a", "tenant_b")


@pytest.fixture
def pooled() -> Iterator[None]:
    """Give the database a pool of one connection."""
    options = connection.settings_dict["OPTIONS"]
    connection.close()
    options["pool"] = {"min_size": 1, "max_size": 1, "timeout": 1}
    try:
        yield
    finally:
        connection.close()
        connection.close_pool()  # type: ignore[attr-defined]
        del options["pool"]


@on_postgresql
def test_a_pool_that_requests_have_emptied(pooled: None) -> None:
    """The heartbeat still renews, without a connection from the pool."""
    call = Call(LEASED)
    # It holds the only connection, as a request does until it ends.
    assert isinstance(call.open(), Execute)
    heartbeat.forget(call.operation)
    beating = Heartbeat(clock=lambda: 0.0)
    beating._thread, beating._wakes = threading.current_thread(), 0.0
    beating.watch(call.operation)
    beats = threading.Thread(target=beating.beat, args=(15.0,))
    beats.start()
    beats.join(30)
    (lease,) = beating._watched.values()
    assert lease.ends == 15.0 + LEASED.lease
    call.settle()
    assert call.listener.events == ["claimed", "completed"]


def test_apart_is_another_connection_and_ends() -> None:
    """Inside the block there is a separate session; afterwards the previous one is back."""
    before = connections["default"]
    with ORMStore().apart():
        own = connections["default"]
        own.ensure_connection()
        assert own is not before
    assert connections["default"] is before
    assert own.connection is None


# ------------------------------------------------------------------------------------------- places


@pytest.fixture
def tenants() -> Iterator[None]:
    """Make two schemas with a table of records each, and select the first."""
    with connection.cursor() as cursor:
        for name in TENANTS:
            cursor.execute(f"CREATE SCHEMA {name}")
            cursor.execute(
                f"CREATE TABLE {name}.django_idempotency_record (LIKE "
                "django_idempotency_record INCLUDING ALL)"
            )
    look_at("tenant_a")
    try:
        yield
    finally:
        look_at("public")
        with connection.cursor() as cursor:
            for name in TENANTS:
                cursor.execute(f"DROP SCHEMA {name} CASCADE")


def look_at(*schemas: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SET search_path TO {', '.join(schemas)}")


@on_postgresql
def test_a_schema_that_the_heartbeat_does_not_look_at(tenants: None) -> None:
    """The heartbeat renews where the claim has written, each record in its own table; none is
    lost.
    """
    first, second = Call(LEASED), Call(make_ticket(guarantee=Guarantee.LEASE, owner=OTHER))
    assert isinstance(first.open(), Execute)
    look_at("tenant_b")
    assert isinstance(second.open(), Execute)  # the same key of another tenant is another record
    tickets = [call.operation.ticket for call in (first, second)]
    assert elsewhere(lambda: ORMStore().renew(tickets)) == {LEASED.owner, OTHER}


@on_postgresql
def test_a_schema_that_is_gone(tenants: None) -> None:
    """Its leases get no response; those of the others are renewed."""
    first, second = Call(LEASED), Call(make_ticket(guarantee=Guarantee.LEASE, owner=OTHER))
    first.open()
    look_at("tenant_b")
    second.open()
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE tenant_a.django_idempotency_record")
    tickets = [call.operation.ticket for call in (first, second)]
    with pytest.raises(StoreUnavailable) as raised:
        elsewhere(lambda: ORMStore().renew(tickets))
    assert raised.value.renewed == {OTHER}
    heartbeat.forget(first.operation)


@on_postgresql
@pytest.mark.parametrize("ticket", [LEASED, atomic_ticket(lease=30)], ids=["lease", "atomic"])
def test_work_that_switches_tenants_and_does_not_switch_back(tenants: None, ticket: Ticket) -> None:
    """A claim made in one schema is settled there."""
    call = Call(ticket)
    assert isinstance(call.open(), Execute)
    look_at("tenant_b")
    call.settle()
    assert call.listener.events == ["claimed", "completed"]
    look_at("tenant_a")
    assert Call(ticket).open() == Replay(outcome=OUTCOME, attempt=1)


@on_postgresql
def test_tasks_that_share_a_connection(tenants: None) -> None:
    """Outside a request all tasks share one thread, and its settings: the settle still finds its
    record.
    """
    listener = Listener()

    async def call() -> None:
        operation = LeaseOperation(ORMStore(), LEASED, listener)
        assert isinstance(await threads.aopen(operation), Execute)
        await sync_to_async(look_at)("tenant_b")
        await threads.in_thread_of(
            operation.store, operation.settle, Ending(WorkResult.KEPT, OUTCOME, succeeded=True)
        )

    async_to_sync(call)()
    assert listener.events == ["claimed", "completed"]


@on_postgresql
def test_a_shared_table_behind_the_tenants_schema(tenants: None) -> None:
    """The table counts, not the first schema of the path."""
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE tenant_a.django_idempotency_record")
    look_at("tenant_a", "public")
    call = Call(LEASED)
    call.open()
    assert elsewhere(lambda: ORMStore().renew([call.operation.ticket])) == {LEASED.owner}
    call.settle()
    assert IdempotencyRecord.objects.get().status == Status.COMPLETED


@on_postgresql
@pytest.mark.parametrize("name", ["50%off", "%s", "100%% of (%(x)s)", 'a "b" {c} \\'])
@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_a_schema_of_any_name(name: str, guarantee: Guarantee) -> None:
    """A name from the database is never part of a format string: each verb finds its record in such
    a schema.
    """
    ticket = make_ticket(guarantee=guarantee, lease=30.0 if guarantee is Guarantee.LEASE else 0)
    quoted = '"{}"'.format(name.replace('"', '""'))
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE SCHEMA {quoted}")
            cursor.execute(
                f"CREATE TABLE {quoted}.django_idempotency_record (LIKE "
                "django_idempotency_record INCLUDING ALL)"
            )
        look_at(quoted)
        call = Call(ticket)
        assert isinstance(call.open(), Execute)
        claimed = call.operation.ticket
        assert claimed.location is not None
        if guarantee is Guarantee.LEASE:
            assert elsewhere(
                lambda: ORMStore().renew([claimed, claimed._replace(owner=OTHER)])
            ) == {ticket.owner}
        call.settle(WorkResult.FAILED)
        again = Call(ticket)
        assert again.open() == Execute(attempt=2)
        again.settle()
        elsewhere(lambda: ORMStore().wait(claimed, seconds=1))
        assert Call(ticket).open() == Replay(outcome=OUTCOME, attempt=2)
        assert call.listener.events == ["claimed", "released"]
        assert IdempotencyRecord.objects.count() == 1
    finally:
        look_at("public")
        with connection.cursor() as cursor:
            cursor.execute(f"DROP SCHEMA IF EXISTS {quoted} CASCADE")
