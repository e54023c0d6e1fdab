"""django-tenants itself: a schema for each tenant, one table of records or one in each, and keys that never meet."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command, execute_from_command_line
from django.db import connections
from django.test import Client, override_settings
from django.utils import timezone
from django_tenants.utils import schema_context

from django_idempotency import idempotent_function
from django_idempotency.checks.databases import check_databases
from django_idempotency.checks.tenants import check_tenants
from django_idempotency.models import IdempotencyRecord
from testproject.payments.models import Effect
from tests.neighbours.django_tenants.models import Domain, Tenant
from tests.neighbours.tenants import FRONTS, KEY, behind, send
from tests.services import answers, needs_redis

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(
        os.environ.get("REQUIRE_SERVICES") != "1" and not answers(int(os.environ.get("POSTGRESQL_PORT", "5432"))),
        reason="PostgreSQL does not answer.",
    ),
]

NAMES = ("acme", "umbrella")
HOSTS = {name: f"{name}.localhost" for name in NAMES}
#: Their types know nothing of what django-tenants adds.
PROJECT: Any = settings
connection: Any = connections["default"]
EACH = "django_idempotency" in PROJECT.TENANT_APPS
REALM = "django_idempotency.realms.schema"
fronts = pytest.mark.parametrize("front", [*FRONTS[:2], pytest.param(FRONTS[2], marks=needs_redis)])


@pytest.fixture(autouse=True)
def tenants(transactional_db: None) -> Iterator[None]:
    """Two tenants, each with a user 1, whose schemas are migrated by the first test, and emptied before each."""
    connection.set_schema_to_public()
    for name in NAMES:
        tenant, _ = Tenant.objects.get_or_create(schema_name=name)
        Domain.objects.get_or_create(domain=HOSTS[name], tenant=tenant, defaults={"is_primary": True})
        with schema_context(name):
            User.objects.get_or_create(pk=1, defaults={"username": name})
            Effect.objects.all().delete()
            IdempotencyRecord.objects.all().delete()
    IdempotencyRecord.objects.all().delete()
    yield
    connection.set_schema_to_public()


def shop(front: str, **more: Any) -> override_settings:
    return override_settings(IDEMPOTENCY={"STORES": behind(front), **more})


def sent(where: str = "pay") -> list[tuple[str, bool]]:
    """Send the same request to both, twice."""
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
        cursor.execute("SELECT schemaname FROM pg_tables WHERE tablename = 'django_idempotency_record'")
        return {schema for (schema,) in cursor.fetchall()}


def test_migrate_schemas_puts_the_table_where_the_settings_say() -> None:
    """In the public schema, or in that and each tenant's."""
    assert tables() == {"public", *(NAMES if EACH else ())}


@fronts
def test_users(front: str) -> None:
    """User 1 of the second tenant gets an own response, and an own charge."""
    with shop(front, REALM=REALM):
        for where in ("pay", "order"):  # the key is the client's, or selected
            assert sent(where) == [
                (f"that of 1 of {HOSTS[name]}", replayed) for replayed in (False, True) for name in NAMES
            ]
    assert in_schemas(Effect) == {"acme": 2, "umbrella": 2}
    assert in_schemas(IdempotencyRecord) == dict.fromkeys(NAMES, 2 if EACH else 4)


@fronts
def test_without_a_realm_they_meet(front: str) -> None:
    """So the test above can fail: in one table always, and with a table in each schema behind any front."""
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
    """A task that django-tenants runs in a schema is in that realm; no request is asked."""
    found = []
    with shop(front, REALM=REALM):
        for name in (*NAMES, *NAMES):
            with schema_context(name):
                found.append(charge(17))
                assert charge.idempotency.scope.startswith(f"realm:{name}/call:")
    assert found[:2] == found[2:]
    assert [answer.split()[-1] for answer in found[:2]] == list(NAMES)
    assert in_schemas(Effect) == {"acme": 1, "umbrella": 1}


def test_a_record_is_shown_and_expired_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    """By scope and realm; another tenant's is untouched."""
    with shop("no front", REALM=REALM):
        sent()
        user = "user:auth.user:1"
        with schema_context("acme"):
            assert f"realm:acme/{user}" in command("idempotency_record", f"realm:acme/{user}", KEY)
            with pytest.raises(CommandError, match="no record"):
                command("idempotency_record", user, KEY)
            assert command("idempotency_record", user, KEY, "--realm", "acme", "--expire").startswith("Expired")
        assert [replayed for _, replayed in sent()] == [False, True, True, True]
        typed = f"manage.py tenant_command idempotency_record --schema=umbrella realm:umbrella/{user} {KEY}"
        execute_from_command_line(typed.split())
        assert f"realm:umbrella/{user}" in capsys.readouterr().out


def test_purge() -> None:
    """As the page says: once for one table, by all_tenants_command for one in each schema."""
    with shop("no front", REALM=REALM):
        sent()
        past = timezone.now() - timedelta(days=1)
        for name in NAMES:
            with schema_context(name):
                IdempotencyRecord.objects.update(expires_at=past, lease_until=past)
        connection.set_schema_to_public()  # as a process starts
        command("purge_idempotency")
        assert in_schemas(IdempotencyRecord) == dict.fromkeys(NAMES, 1 if EACH else 0)
        call_command("all_tenants_command", "purge_idempotency")
        assert in_schemas(IdempotencyRecord) == dict.fromkeys(NAMES, 0)


def test_checks() -> None:
    """Nothing to say as it is; without a realm what to type."""
    assert [*check_tenants(), *check_databases()] == []
    with override_settings(IDEMPOTENCY={}):
        assert [message.id for message in check_tenants()] == ["django_idempotency.W068"]
