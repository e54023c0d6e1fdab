"""Debezium in place of a broker's client: what its router makes of PostgreSQL's log, as the page
configures it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from pytest_django import DjangoDbBlocker

from django_idempotency.contrib import outbox
from django_idempotency.contrib.outbox.models import Message
from django_idempotency.contrib.outbox.relaying import Relay

from ...docs.pages import text
from ...support.database_servers import postgresql
from ...support.services import needs_postgresql_server, program

ALIAS = "logged"
ROUTER = "transforms.outbox."
#: What PostgreSQL's own plugin prints of a change.
CHANGE = re.compile(r"table ([\w.]+): (\w+): (.*)")
COLUMN = re.compile(r"(\w+)\[[^\]]+\]:(?:'((?:[^']|'')*)'|(\S+))")


@pytest.fixture
def logged(
    monkeypatch: pytest.MonkeyPatch, django_db_blocker: DjangoDbBlocker
) -> Iterator[BaseDatabaseWrapper]:
    """Return a connection to a server with a logical log, the outbox in it, and a slot that
    remembers what was read.
    """
    initdb = program("initdb")
    assert initdb is not None, "PostgreSQL's server is not installed"
    with (
        postgresql(Path(initdb).parent, "wal_level=logical") as server,
        django_db_blocker.unblock(),
    ):
        place = {
            "NAME": "postgres",
            "HOST": "127.0.0.1",
            "PORT": server.port,
            "USER": "postgres",
            "PASSWORD": "",
        }
        given = {
            **connections.settings["default"],
            "ENGINE": "django.db.backends.postgresql",
            "OPTIONS": {},
            **place,
        }
        monkeypatch.setitem(connections.settings, ALIAS, given)
        connection = connections[ALIAS]
        with connection.schema_editor() as editor:
            editor.create_model(Message)
        ask(connection, "SELECT pg_create_logical_replication_slot('debezium', 'test_decoding')")
        yield connection
        connection.close()
        del connections[ALIAS]


def ask(connection: BaseDatabaseWrapper, sql: str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return [row[-1] for row in cursor.fetchall()]


def properties() -> dict[str, str]:
    """Return the configuration as it is printed on the page."""
    found = re.search(
        r"^```properties\n(.*?)^```$", text("how-to/outbox.md"), re.DOTALL | re.MULTILINE
    )
    assert found
    return dict(line.split("=", 1) for line in found[1].splitlines())


def routed(config: dict[str, str], log: list[str]) -> list[dict[str, Any]]:
    """Return what the event router sends: it reads INSERTs of the table, and leaves DELETEs out."""
    sent = []
    for table, verb, columns in (
        found.groups() for line in log if (found := CHANGE.fullmatch(line))
    ):
        if (table, verb) == (config["table.include.list"], "INSERT"):
            row = {
                name: quoted.replace("''", "'") or plain
                for name, quoted, plain in COLUMN.findall(columns)
            }
            field = {
                each: row[config[f"{ROUTER}table.field.event.{each}"]]
                for each in ("id", "key", "payload")
            }
            topic = config[f"{ROUTER}route.topic.replacement"]
            topic = topic.replace("${routedByValue}", row[config[f"{ROUTER}route.by.field"]])
            sent.append({**field, "payload": json.loads(field["payload"]), "topic": topic})
    return sent


@needs_postgresql_server
@pytest.mark.slow
@pytest.mark.any_database
def test_the_router_reads_what_was_committed(logged: BaseDatabaseWrapper) -> None:
    """Each committed message once, in order, though the relay has deleted it; none that was rolled
    back.
    """
    ids = []
    for number in range(2):
        with transaction.atomic(using=ALIAS):
            sent = outbox.send("order.paid", {"it's": number}, key="order-7", using=ALIAS)
        ids.append(str(sent))
    with transaction.atomic(using=ALIAS):
        outbox.send("order.paid", 3, key="order-7", using=ALIAS)
        transaction.set_rollback(True, using=ALIAS)
    assert len(Relay(lambda message: None, using=ALIAS).batch().published) == 2
    assert not Message.objects.using(ALIAS).exists()
    log = ask(logged, "SELECT data FROM pg_logical_slot_get_changes('debezium', NULL, NULL)")
    assert routed(properties(), log) == [
        {"id": message_id, "key": "order-7", "payload": {"it's": number}, "topic": "order.paid"}
        for number, message_id in enumerate(ids)
    ]
    assert any(": DELETE:" in line for line in log)


def test_it_names_the_table() -> None:
    config = properties()
    assert config["table.include.list"] == f"public.{Message._meta.db_table}"
    assert config[f"{ROUTER}type"] == "io.debezium.transforms.outbox.EventRouter"
