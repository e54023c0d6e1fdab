"""django-tenants itself: a schema per tenant, one table of records or one per schema, and keys that
never meet.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from io import StringIO
from threading import Thread
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command, execute_from_command_line
from django.db import connections, transaction
from django.test import Client, override_settings
from django.utils import timezone
from django_tenants.utils import schema_context, tenant_context

from django_idempotency import idempotent_function
from django_idempotency.checks.databases import check_databases
from django_idempotency.contrib import outbox
from django_idempotency.contrib.outbox.models import Message
from django_idempotency.contrib.outbox.relaying import MAX_ATTEMPTS, Relay
from django_idempotency.contrib.tenants.checks import check_tenants
from django_idempotency.core.conclusions import Ending, WorkResult
from django_idempotency.core.records import Guarantee, Outcome
from django_idempotency.core.rules import Execute
from django_idempotency.engine.heartbeat import heartbeat
from django_idempotency.engine.lease import LeaseOperation
from django_idempotency.errors import ConfigurationError
from django_idempotency.models import IdempotencyRecord
from django_idempotency.stores.orm import ORMStore
from django_idempotency.testing.tickets import make_ticket
from testproject.payments.models import Effect
from tests.proofs.neighbours.django_tenants.models import Domain, Tenant
from tests.proofs.neighbours.tenants import FRONTS, KEY, behind, send
from tests.support.fakes import Listener
from tests.support.services import answers, needs_redis

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(
        os.environ.get("REQUIRE_SERVICES") != "1"
        and not answers(int(os.environ.get("POSTGRESQL_PORT", "5432"))),
        reason="PostgreSQL does not answer.",
    ),
]

NAMES = ("acme", "umbrella")
HOSTS = {name: f"{name}.localhost" for name in NAMES}
#: Their types do not know what django-tenants adds.
PROJECT: Any = settings
connection: Any = connections["default"]
EACH = "django_idempotency" in PROJECT.TENANT_APPS
REALM = "django_idempotency.contrib.tenants.schema"
#: Schema and payload of each message that reached the broker.
PUBLISHED: list[tuple[str, str]] = []
fronts = pytest.mark.parametrize("front", [*FRONTS[:2], pytest.param(FRONTS[2], marks=needs_redis)])


@pytest.fixture(autouse=True)
def tenants(transactional_db: None) -> Iterator[None]:
    """Two tenants, each with a user 1; the first test migrates their schemas, and each test begins
    with empty ones.
    """
    connection.set_schema_to_public()
    for name in NAMES:
        tenant, _ = Tenant.objects.get_or_create(schema_name=name)
        Domain.objects.get_or_create(
            domain=HOSTS[name], tenant=tenant, defaults={"is_primary": True}
        )
        with schema_context(name):
            User.objects.get_or_create(pk=1, defaults={"username": name})
            Effect.objects.all().delete()
            IdempotencyRecord.objects.all().delete()
            Message.objects.all().delete()
    IdempotencyRecord.objects.all().delete()
    Message.objects.all().delete()
    PUBLISHED.clear()
    yield
    connection.set_schema_to_public()


def shop(front: str, **more: Any) -> override_settings:
    return override_settings(IDEMPOTENCY={"STORES": behind(front), **more})


def sent(where: str = "pay") -> list[tuple[str, bool]]:
    """Send the same request to both tenants, twice."""
    clients = {}
    for name in NAMES:
        with schema_context(name):
            clients[name] = Client()
            clients[name].force_login(User.objects.get(pk=1))
    return [send(clients[name], where, HOSTS[name]) for name in (*NAMES, *NAMES)]


def in_schemas(model: Any) -> dict[str, int]:
    """Return how many rows each tenant sees."""
    found = {}
    for name in NAMES:
        with schema_context(name):
            found[name] = model.objects.count()
    return found


def command(name: str, *arguments: str, **options: Any) -> str:
    out = StringIO()
    call_command(name, *arguments, stdout=out, **options)
    return out.getvalue()


def tables() -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT schemaname FROM pg_tables WHERE tablename = 'django_idempotency_record'"
        )
        return {schema for (schema,) in cursor.fetchall()}


def test_migrate_schemas_puts_the_table_where_the_settings_say() -> None:
    """The table is in the public schema, or in that and in each tenant's."""
    assert tables() == {"public", *(NAMES if EACH else ())}


@fronts
def test_users(front: str) -> None:
    """User 1 of the second tenant gets a response and a charge of its own."""
    with shop(front, REALM=REALM):
        for where in ("pay", "order"):  # the key is the client's, or selected
            assert sent(where) == [
                (f"that of 1 of {HOSTS[name]}", replayed)
                for replayed in (False, True)
                for name in NAMES
            ]
    assert in_schemas(Effect) == {"acme": 2, "umbrella": 2}
    assert in_schemas(IdempotencyRecord) == dict.fromkeys(NAMES, 2 if EACH else 4)


@fronts
def test_without_a_realm_they_meet(front: str) -> None:
    """The test above can fail: always with one table, and with a table per schema behind any
    front.
    """
    with shop(front):
        found = sent()
    meets = not EACH or front != "no front"
    assert found[1] == (f"that of 1 of {HOSTS['acme' if meets else 'umbrella']}", meets)
    assert in_schemas(Effect) == {"acme": 1, "umbrella": 0 if meets else 1}


@idempotent_function(key="order")
def charge(order: int) -> str:
    return f"{Effect.objects.create(label='order').pk} of {connection.schema_name}"


@fronts
def test_functions(front: str) -> None:
    """A task that django-tenants runs in a schema is in that realm, without a request."""
    found = []
    with shop(front, REALM=REALM):
        for name in (*NAMES, *NAMES):
            with schema_context(name):
                found.append(charge(17))
                assert charge.idempotency.scope.startswith(f"realm:{name}/call:")
    assert found[:2] == found[2:]
    assert [answer.split()[-1] for answer in found[:2]] == list(NAMES)
    assert in_schemas(Effect) == {"acme": 1, "umbrella": 1}


# ---------------------------------------------------------------------------------------- the lease


def lease_of(name: str) -> datetime:
    with schema_context(name):
        found: datetime | None = IdempotencyRecord.objects.get(
            scope__startswith=f"realm:{name}/"
        ).lease_until
    assert found is not None
    return found


def beat(after: float) -> None:
    """Beat as the heartbeat's thread, whose connection was never in a tenant's schema, would after
    so many seconds.
    """
    beating = Thread(target=heartbeat.beat, args=(time.monotonic() + after,))
    beating.start()
    beating.join(10)
    assert not beating.is_alive()


@idempotent_function(key="order", guarantee="lease")
def ship(order: int) -> list[datetime]:
    """Return the end of its lease before and after a beat, and after one while the work uses
    another schema.
    """
    mine = connection.schema_name
    found = [lease_of(mine)]
    beat(15)
    found.append(lease_of(mine))
    connection.set_schema(next(name for name in NAMES if name != mine))
    beat(40)
    connection.set_schema(mine)
    return [*found, lease_of(mine)]


def test_a_lease_is_renewed_in_its_schema() -> None:
    """The lease is renewed while the work runs, whatever schema it is using; and its result is
    remembered.
    """
    with shop("no front", REALM=REALM):
        for name in NAMES:
            with schema_context(name):
                first, second, third = ship(17)
                assert first < second < third
                assert ship(17) == [first, second, third]


def opened(name: str) -> tuple[LeaseOperation, Listener]:
    """Open a lease of a tenant: in its own table under the very same key, or in the one table under
    its realm.
    """
    scope = "user:1" if EACH else f"realm:{name}/user:1"
    ticket = make_ticket(scope=scope, key=KEY, guarantee=Guarantee.LEASE, lease=30.0)
    operation = LeaseOperation(ORMStore(), ticket, listener := Listener())
    with schema_context(name):
        assert isinstance(operation.open(), Execute)
    return operation, listener


def settled(name: str, operation: LeaseOperation) -> None:
    with schema_context(name):
        operation.settle(
            Ending(WorkResult.KEPT, Outcome(status=201, body=name.encode()), succeeded=True)
        )


def row(name: str, operation: LeaseOperation) -> Any:
    with schema_context(name):
        return IdempotencyRecord.objects.filter(pk=operation.ticket.id).values().get()


def test_a_takeover_touches_no_other_tenant() -> None:
    """The owner in acme is silent and is overtaken; the one in umbrella, under the same key, goes
    on and completes.
    """
    (silent, lost), (living, kept) = opened("acme"), opened("umbrella")
    heartbeat.forget(silent)
    with schema_context("acme"):
        IdempotencyRecord.objects.filter(pk=silent.ticket.id).update(
            lease_until=timezone.now() - timedelta(seconds=1)
        )
    before = row("umbrella", living)
    heir, took_over = opened("acme")
    assert (heir.attempt, row("umbrella", living)) == (2, before)
    beat(15)
    assert row("umbrella", living)["lease_until"] > before["lease_until"]
    for name, operation in (("acme", silent), ("umbrella", living), ("acme", heir)):
        settled(name, operation)
    assert (lost.events, kept.events) == (["claimed", "lost"], ["claimed", "completed"])
    assert took_over.events == ["taken_over", "completed"]
    for name, operation, attempt in (("acme", heir, 2), ("umbrella", living, 1)):
        found = row(name, operation)
        assert (bytes(found["response_body"]), found["attempt"]) == (name.encode(), attempt)


# --------------------------------------------------------------------------------------- the outbox


def publish(message: Message) -> None:
    payload = str(message.payload)
    if payload.startswith("bad"):
        raise ValueError(payload)
    PUBLISHED.append((connection.schema_name, payload))


def send_in(name: str, payload: str, *, position: int | None = None) -> None:
    with schema_context(name):
        with transaction.atomic():
            message = Message.objects.filter(message_id=outbox.send("topic", payload))
        if position is not None:
            message.update(id=position)


def relay(name: str) -> None:
    """Run the command that the docs give for the relay of a tenant."""
    where = (
        ["tenant_command", "idempotency_relay", f"--schema={name}"]
        if EACH
        else ["idempotency_relay"]
    )
    execute_from_command_line(["manage.py", *where, "--once", f"--publisher={__name__}.publish"])


def test_the_outbox_is_relayed_per_schema() -> None:
    """With a table per schema, a relay publishes its own tenant's messages; one table needs one
    relay.
    """
    for name in NAMES:
        send_in(name, f"of {name}")
    relay("acme")
    expected = [("acme", "of acme")] if EACH else [("public", f"of {name}") for name in NAMES]
    assert expected == PUBLISHED
    assert in_schemas(Message) == {"acme": 0, "umbrella": int(EACH)}
    relay("umbrella")
    assert len(PUBLISHED) == len(NAMES)
    assert in_schemas(Message) == dict.fromkeys(NAMES, 0)


@pytest.mark.skipif(not EACH, reason="One table is the same in every schema")
def test_a_relay_that_reconnects_stays_in_its_schema() -> None:
    """After a restart of its server, the relay still publishes its own tenant's messages."""
    for name in NAMES:
        send_in(name, f"of {name}")
    with schema_context("acme"):
        relaying = Relay(publish, using="default")
        connection.close()
        assert len(relaying.batch().published) == 1
        assert not relaying.batch()
    assert PUBLISHED == [("acme", "of acme")]


@pytest.mark.skipif(not EACH, reason="One table is the same in every schema")
@pytest.mark.parametrize("payload", ["good", "bad"])
def test_a_publisher_that_leaves_the_schema(payload: str) -> None:
    """A message at the same position in another schema is neither deleted nor delayed; the relay
    says why it ends.
    """
    for name in NAMES:
        send_in(name, f"{payload} of {name}", position=10**6)

    def leave(message: Message) -> None:
        connection.set_schema("umbrella")
        publish(message)

    with schema_context("acme"), pytest.raises(ConfigurationError, match="another schema"):
        Relay(leave, using="default").batch()
    for name in NAMES:
        with schema_context(name):
            message = Message.objects.get()
            assert (message.attempts, message.unended, message.not_before) == (0, 0, None)


@pytest.mark.skipif(not EACH, reason="One table is the same in every schema")
def test_a_publisher_that_always_leaves_the_schema() -> None:
    """However often its relay is restarted, no message is set aside: each error is the
    publisher's.
    """
    send_in("acme", "good")

    def leave(message: Message) -> None:
        connection.set_schema("umbrella")
        publish(message)

    for _ in range(MAX_ATTEMPTS + 1):
        with schema_context("acme"), pytest.raises(ConfigurationError, match="another schema"):
            Relay(leave, using="default").batch()
    with schema_context("acme"):
        assert Message.objects.get().unended == 0
        assert len(Relay(publish, using="default").batch().published) == 1


@pytest.mark.skipif(not EACH, reason="One table is the same in every schema")
def test_relaying_every_schema() -> None:
    """The page's loop continues after a tenant whose message fails, where all_tenants_command
    ends.
    """
    path = f"--publisher={__name__}.publish"

    def attempts() -> int:
        found = 0
        for name in NAMES:
            with schema_context(name):
                found += Message.objects.get().attempts
                Message.objects.update(not_before=None)  # try again now
        return found

    for name in NAMES:
        send_in(name, "bad")
    with pytest.raises(CommandError):
        call_command("all_tenants_command", "idempotency_relay", "--", "--once", path)
    assert attempts() == 1
    failed = []
    for tenant in Tenant.objects.all():
        with tenant_context(tenant):
            try:
                call_command("idempotency_relay", "--once", path)
            except CommandError:
                failed.append(tenant.schema_name)
    assert sorted(failed) == sorted(NAMES)
    assert attempts() == 3


def test_a_record_is_shown_and_expired_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    """A record is found by scope and realm; another tenant's is untouched."""
    with shop("no front", REALM=REALM):
        sent()
        user = "user:auth.user:1"
        with schema_context("acme"):
            assert f"realm:acme/{user}" in command("idempotency_record", f"realm:acme/{user}", KEY)
            with pytest.raises(CommandError, match="no record"):
                command("idempotency_record", user, KEY)
            assert command(
                "idempotency_record", user, KEY, "--realm", "acme", "--expire"
            ).startswith("Expired")
        assert [replayed for _, replayed in sent()] == [False, True, True, True]
        typed = (
            "manage.py tenant_command idempotency_record --schema=umbrella "
            f"realm:umbrella/{user} {KEY}"
        )
        execute_from_command_line(typed.split())
        assert f"realm:umbrella/{user}" in capsys.readouterr().out


def test_purge() -> None:
    """As the page says: one purge for one table, all_tenants_command for a table per schema."""
    with shop("no front", REALM=REALM):
        sent()
        past = timezone.now() - timedelta(days=1)
        for name in NAMES:
            with schema_context(name):
                IdempotencyRecord.objects.update(expires_at=past, purge_at=past, lease_until=past)
        connection.set_schema_to_public()  # as a process starts
        command("purge_idempotency")
        assert in_schemas(IdempotencyRecord) == dict.fromkeys(NAMES, 1 if EACH else 0)
        call_command("all_tenants_command", "purge_idempotency")
        assert in_schemas(IdempotencyRecord) == dict.fromkeys(NAMES, 0)


def test_checks() -> None:
    """The checks find nothing; without a realm they say what to type."""
    assert [*check_tenants(), *check_databases()] == []
    with override_settings(IDEMPOTENCY={}):
        assert [message.id for message in check_tenants()] == ["django_idempotency.W068"]
