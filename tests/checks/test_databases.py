"""What DATABASES says, and what the servers respond."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core import checks
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import OperationalError, connection, connections
from pytest_django import Settings

from django_idempotency.checks.databases import check_databases
from django_idempotency.checks.servers import check_servers
from django_idempotency.stores.orm import dialects
from django_idempotency.stores.orm.checks import check_server
from django_idempotency.stores.orm.dialects import Dialect, PostgreSQL

from .conftest import hints

ORM = "django_idempotency.stores.orm.ORMStore"
OUTSIDE = "tests.checks.backends.OutsideStore"


class KeptOut:
    """A router that allows none of our tables."""

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        return False if app_label == "django_idempotency" else None


def test_a_router_that_keeps_the_table_out(settings: Settings) -> None:
    """W002: migrate would not report it."""
    settings.DATABASE_ROUTERS = [f"{__name__}.KeptOut"]
    assert 'allow_migrate("default", "django_idempotency")' in hints(check_databases())["W002"]


# ----------------------------------------------------------------------------------------- --deploy


class Answers:
    """A cursor of a server with these settings."""

    def __init__(self, **values: str) -> None:
        self.values = values

    def execute(self, sql: str) -> None:
        pass

    def fetchall(self) -> list[tuple[str, str]]:
        return list(self.values.items())


def server(vendor: str, **values: str) -> dict[str, str]:
    connection: Any = SimpleNamespace(vendor=vendor, alias="default")
    return hints(check_server(connection, Answers(**values)))


@pytest.mark.parametrize(
    ("vendor", "values", "code", "typed"),
    [
        ("postgresql", {"synchronous_commit": "off"}, "W067", "synchronous_commit = on"),
        ("postgresql", {"fsync": "off"}, "W067", "fsync = on in postgresql.conf"),
        ("mysql", {"innodb_flush_log_at_trx_commit": "2"}, "W067", "_at_trx_commit=1 under"),
        ("mysql", {"innodb_rollback_on_timeout": "ON"}, "E056", "rollback_on_timeout=OFF"),
    ],
)
def test_a_server_that_loses_records(
    vendor: str, values: dict[str, str], code: str, typed: str
) -> None:
    """What it has committed, or half of a transaction."""
    found = server(vendor, **values)
    assert list(found) == [code]
    assert typed in found[code]


@pytest.mark.parametrize(
    ("vendor", "values"),
    [
        # A local flush is one, whatever the replicas have.
        ("postgresql", {"synchronous_commit": "local", "fsync": "on"}),
        ("mysql", {"innodb_flush_log_at_trx_commit": "1", "innodb_rollback_on_timeout": "OFF"}),
        # A compatible server, such as CockroachDB, Aurora and TiDB, may lack a variable.
        ("postgresql", {}),
        ("mysql", {}),
    ],
)
def test_a_server_that_keeps_records(vendor: str, values: dict[str, str]) -> None:
    """Nothing is said."""
    assert server(vendor, **values) == {}


def test_a_dialect_of_the_projects_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """One derived from ours gets the checks of ours, and any other gets none."""
    derived = type("Derived", (PostgreSQL,), {"vendor": "derived"})
    other = type("Other", (Dialect,), {"vendor": "other"})
    monkeypatch.setattr(dialects, "_DIALECTS", [derived, other, *dialects._DIALECTS])
    assert server("derived", fsync="off").keys() == {"W067"}
    assert server("other", fsync="off") == {}
    assert server("unknown", fsync="off") == {}


#: What is found of the testproject's databases, set up for tests.
EXPECTED = {"sqlite": {"W067"}, "postgresql": {"W067"}, "mysql": {"E056", "W067"}}


@pytest.mark.django_db
def test_the_real_server_is_asked() -> None:
    """Each statement works on the real server, and the check finds only what is expected."""
    assert hints(check_servers()).keys() <= EXPECTED[connection.vendor]


@pytest.mark.django_db
@pytest.mark.skipif("connection.vendor != 'sqlite'", reason="its levels")
@pytest.mark.parametrize(
    ("level", "wal", "found"),
    [(0, False, True), (1, False, False), (1, True, True), (2, True, False)],
)
def test_what_a_commit_of_sqlite_waits_for(
    level: int, wal: bool, found: bool, tmp_path: Path
) -> None:
    """W067 where a COMMIT may be lost with the machine's power, and what to type."""
    given = {**connections.settings["default"], "NAME": tmp_path / "db", "OPTIONS": {}}
    made = connections["default"].__class__(given, "apart")
    try:
        with made.cursor() as cursor:
            cursor.execute(f"PRAGMA journal_mode={'wal' if wal else 'delete'}")
            cursor.execute(f"PRAGMA synchronous={level}")
            hint = hints(check_server(made, cursor)).get("W067")
    finally:
        made.close()
    assert (hint is not None) is found
    assert hint is None or '["init_command"] = "PRAGMA synchronous=FULL"' in hint


@pytest.mark.django_db
def test_other_databases_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """`check --deploy --database other` does not query ours."""
    monkeypatch.setattr(connections["default"], "cursor", lambda: pytest.fail("connected"))
    assert check_servers(databases=["other"]) == []


def test_a_database_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """W060 instead of a traceback."""

    def cursor() -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(connections["default"], "cursor", cursor)
    found = check_servers()
    assert list(hints(found)) == ["W060"]
    assert "connection refused" in found[0].msg


# -------------------------------------------------------------------------------------- testproject


@pytest.mark.django_db  # SQLite is asked once whether it knows JSON
def test_the_testproject_is_clean() -> None:
    """`manage.py check` finds nothing in all of Django."""
    assert [each for each in checks.run_checks() if not each.is_silenced()] == []


@pytest.mark.django_db
def test_the_testproject_deployed(capsys: pytest.CaptureFixture[str]) -> None:
    """`manage.py check --deploy` finds of ours what the server of the tests lacks, and no more."""
    with suppress(SystemCheckError):
        call_command("check", deploy=True)
    found = checks.run_checks(include_deployment_checks=True)
    ours = [str(each.id) for each in found if not each.is_silenced()]
    assert {
        code.removeprefix("django_idempotency.") for code in ours if code.startswith("django_idem")
    } <= EXPECTED[connection.vendor]


def test_a_check_never_connects(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only --deploy checks connect: `manage.py check` also runs where there is no database, such as
    in a build.
    """
    monkeypatch.setattr(connections["default"], "cursor", lambda: pytest.fail("connected"))
    assert [
        each for each in checks.run_checks(tags=["idempotency"]) if not each.is_silenced()
    ] == []
