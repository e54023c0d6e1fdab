"""`manage.py idempotency_stores create`: what it creates, what it leaves alone, and what it
prints.
"""

from __future__ import annotations

from io import StringIO
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from django_idempotency.runtime.registry import stores
from django_idempotency.testing.tickets import make_ticket

from ..stores.conftest import dynamodb  # noqa: F401 - a fixture
from ..stores.dynamodb.server import answered, session

ORM = {"BACKEND": "django_idempotency.stores.orm.ORMStore"}


class Tables:
    """The state of DynamoDB, and the settings of stores there."""

    def __init__(self, endpoint: str, settings: Settings) -> None:
        self.name = f"test-{uuid4()}"
        self._options = {"table": self.name, "endpoint_url": endpoint, "session": session()}
        self._settings = settings
        self.boto = session().client("dynamodb", endpoint_url=endpoint)

    def configure(self, **stores: dict[str, Any]) -> None:
        backend = "django_idempotency.stores.dynamodb.DynamoDBStore"
        entries = {
            alias: {"BACKEND": backend, "OPTIONS": self._options | options}
            for alias, options in stores.items()
        }
        self._settings.IDEMPOTENCY = {"STORES": {"default": ORM, **entries}}

    def described(self, name: str = "") -> dict[str, Any]:
        return dict(self.boto.describe_table(TableName=name or self.name)["Table"])

    def names(self) -> list[str]:
        return [
            name for name in self.boto.list_tables()["TableNames"] if name.startswith(self.name)
        ]

    def deleted_by(self) -> str | None:
        found = self.boto.describe_time_to_live(TableName=self.name)["TimeToLiveDescription"]
        return str(found["AttributeName"]) if found["TimeToLiveStatus"] == "ENABLED" else None


@pytest.fixture
def tables(dynamodb: str, settings: Settings) -> Any:  # noqa: F811 - the fixture
    tables = Tables(dynamodb, settings)
    yield tables
    for name in tables.names():
        tables.boto.delete_table(TableName=name)
    tables.boto.close()


def create(*arguments: str, **options: Any) -> list[str]:
    out = StringIO()
    call_command("idempotency_stores", "create", *arguments, stdout=out, **options)
    return out.getvalue().splitlines()


def test_it_creates(tables: Tables) -> None:
    """The table is one that the store can use, paid per request, whose items expire."""
    tables.configure(dynamo={})
    assert create() == [
        f'dynamo: Table "{tables.name}" was created.',
        'dynamo: Its items are deleted by "ttl" from now on.',
    ]
    found = tables.described()
    assert found["KeySchema"] == [{"AttributeName": "id", "KeyType": "HASH"}]
    assert found["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    assert tables.deleted_by() == "ttl"
    ticket = make_ticket()
    assert stores["dynamo"].claim(ticket).owner == ticket.owner


def test_it_runs_at_every_deployment(tables: Tables) -> None:
    """Existing parts are left alone; missing ones are created."""
    tables.configure(dynamo={})
    create()
    assert create() == [
        f'dynamo: Table "{tables.name}" exists already.',
        'dynamo: Its items are deleted by "ttl" already.',
    ]
    off = {"Enabled": False, "AttributeName": "ttl"}
    tables.boto.update_time_to_live(TableName=tables.name, TimeToLiveSpecification=off)
    assert create("--dry-run") == [
        f'dynamo: Table "{tables.name}" exists already.',
        'dynamo: Its items would be deleted by "ttl".',
    ]
    assert tables.deleted_by() is None
    assert create()[1] == 'dynamo: Its items are deleted by "ttl" from now on.'
    assert tables.deleted_by() == "ttl"


def test_two_deployments_at_once(tables: Tables) -> None:
    """The second deployment waits for the table that the first creates."""
    tables.configure(dynamo={})
    create()
    store: Any = stores["dynamo"]
    own = store.client.boto
    store.client.patient = lambda: own
    with answered(store, "ResourceNotFoundException"):
        assert create()[0] == f'dynamo: Table "{tables.name}" was created.'


def test_a_dry_run(tables: Tables) -> None:
    """A dry run creates nothing."""
    tables.configure(dynamo={})
    assert create("--dry-run") == [
        f'dynamo: Table "{tables.name}" would be created, and its items deleted by "ttl".'
    ]
    assert tables.names() == []


def test_names_of_ones_own(tables: Tables) -> None:
    """The key may be composite, and another attribute may hold the expiry."""
    tables.configure(
        dynamo={"key_attr": "PK", "sort_key_attr": "SK", "attributes": {"ttl": "delete_at"}}
    )
    create()
    assert [(key["AttributeName"], key["KeyType"]) for key in tables.described()["KeySchema"]] == [
        ("PK", "HASH"),
        ("SK", "RANGE"),
    ]
    assert tables.deleted_by() == "delete_at"


def test_several_stores(tables: Tables) -> None:
    """Each store gets its table, also behind a local cache; or only the store that is named."""
    tables.configure(one={}, two={"table": f"{tables.name}-2", "local_cache": True})
    create("--store", "two", verbosity=0)
    assert tables.names() == [f"{tables.name}-2"]
    assert [line.partition(":")[0] for line in create()] == ["one", "one", "two", "two"]
    assert create(verbosity=0) == []


def test_nothing_to_create(tables: Tables) -> None:
    """The command reports it without an error, so that every deployment may run it."""
    tables.configure()
    said = "default: It has no table to create, as a DynamoDBStore has."
    assert create("--store", "default") == [said]
    assert create() == []


def test_it_changes_no_other_table(tables: Tables) -> None:
    """A table with another key, or with another expiry attribute, is an error that says what to
    do.
    """
    tables.configure(dynamo={"sort_key_attr": "SK"})
    create()
    tables.configure(dynamo={})
    with pytest.raises(
        CommandError,
        match=r'"id" \(HASH, S\) and "SK" \(RANGE, S\).*needs "id" \(HASH, S\)\. Change',
    ):
        create()
    tables.configure(dynamo={"sort_key_attr": "SK", "attributes": {"ttl": "gone"}})
    with pytest.raises(CommandError, match='are deleted by "ttl", but the store writes "gone"'):
        create()


def test_other_stores(tables: Tables) -> None:
    """An unknown alias is an error."""
    tables.configure()
    with pytest.raises(CommandError, match="has no 'dynamo'"):
        create("--store", "dynamo")


def test_dynamodb_refuses(tables: Tables) -> None:
    """DynamoDB's own words reach the terminal."""
    tables.configure(dynamo={})
    store: Any = stores["dynamo"]
    own = store.client.boto
    store.client.patient = lambda: own
    with (
        answered(store, None, "AccessDeniedException"),
        pytest.raises(CommandError, match=r"'dynamo' did not respond: .*AccessDenied.*CreateTable"),
    ):
        create()
