"""Instants are UTC, whatever the driver, the connection's time zone and USE_TZ say: even in the
hour that repeats.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest
from django.db import DEFAULT_DB_ALIAS, connection, connections
from pytest_django import Settings

from django_idempotency.models import IdempotencyRecord
from django_idempotency.stores.orm import ORMStore
from django_idempotency.testing.tickets import make_ticket

ROOT = Path(__file__).resolve().parent.parent
#: In Berlin it is 02:30 at both: the autumn's first 02:30 and its second.
TWICE = [datetime(2030, 10, 27, hour, 30, tzinfo=timezone.utc) for hour in (0, 1)]


def read_twice() -> None:
    """Write both instants, and read them with the store, with a purge and with the ORM."""
    ticket = make_ticket()
    store = ORMStore()
    store.claim(ticket)
    rows = IdempotencyRecord.objects.filter(pk=ticket.id)
    for instant in TWICE:
        rows.update(lease_until=instant, expires_at=instant, purge_at=instant)
        record = store.get(ticket.id)
        assert record is not None
        assert (record.lease_until, record.expires_at, record.purge_at) == (instant,) * 3
        assert abs((record.read_at - datetime.now(timezone.utc)).total_seconds()) < 60
        assert rows.get().expires_at == instant
        assert list(rows.values_list("lease_until", flat=True)) == [instant]
        assert rows.filter(expires_at=instant).exists()
    born = store.claim(make_ticket(key="born"))
    assert abs((born.created_at - datetime.now(timezone.utc)).total_seconds()) < 60
    past = datetime(2020, 10, 25, 0, 30, tzinfo=timezone.utc)
    rows.update(lease_until=past, expires_at=past, purge_at=past)
    assert store.purge(limit=10).resume == past


@pytest.mark.django_db(transaction=True)
def test_a_project_without_time_zones(settings: Settings) -> None:
    """With USE_TZ off, a connection uses local time."""
    settings.USE_TZ, settings.TIME_ZONE = False, "Europe/Berlin"
    read_twice()


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give the database's connection a time zone of its own, as one database of a project may
    have.
    """
    with monkeypatch.context() as patch:
        patch.setitem(connection.settings_dict, "TIME_ZONE", "Europe/Berlin")
        forget_time_zone()
        yield
    forget_time_zone()


def forget_time_zone() -> None:
    """Make the connection read its time zone again, as Django's own receiver of `setting_changed`
    does.
    """
    connection.close()
    cached = vars(connections[DEFAULT_DB_ALIAS])  # not the proxy's, which is empty
    for name in ("timezone", "timezone_name"):
        cached.pop(name, None)


@pytest.mark.django_db(transaction=True)
def test_a_connection_with_a_time_zone_of_its_own(in_berlin: None) -> None:
    """With USE_TZ on, a database may have another zone than the project."""
    read_twice()


#: Psycopg 2, which Django uses where psycopg 3 is not installed.
SCRIPT = """
import sys
sys.modules["psycopg"] = None
import testproject.settings
testproject.settings.USE_TZ, testproject.settings.TIME_ZONE = False, "Europe/Berlin"
import django
django.setup()
from tests.test_instants import read_twice
from django.db import DEFAULT_DB_ALIAS, connection, connections
connection.ensure_connection()
assert type(connection.connection).__module__.startswith("psycopg2")
read_twice()
"""


@pytest.mark.skipif("connection.vendor != 'postgresql'", reason="a driver of PostgreSQL")
@pytest.mark.django_db(transaction=True)
def test_a_driver_that_returns_local_time_without_a_zone() -> None:
    """Psycopg 2 does so under USE_TZ=False, and then it is unknown which of the two 02:30 it is."""
    environment = {**os.environ, "DATABASE_NAME": str(connection.settings_dict["NAME"])}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
