"""What DATABASES says, and what the servers respond."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core import checks
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import OperationalError, connection, connections
from django.db.migrations.recorder import MigrationRecorder
from pytest_django import Settings

from django_idempotency.checks.databases import check_databases, check_migrations
from django_idempotency.contrib.advice.servers import check_deployment, on_server
from django_idempotency.stores.orm import dialects
from django_idempotency.stores.orm.dialects import Dialect, PostgreSQL

from .conftest import Configure, hints

ORM = "django_idempotency.stores.orm.ORMStore"
OUTSIDE = "tests.checks.backends.OutsideStore"

AddDatabase = Callable[..., None]


@pytest.fixture
def add_database(monkeypatch: pytest.MonkeyPatch) -> Iterator[AddDatabase]:
    """Return a function that adds to DATABASES, which Django reads once."""
    added = []

    def add(alias: str, **declared: Any) -> None:
        other = {
            **connections.settings["default"],
            "NAME": f"{alias}.sqlite3",
            "TEST": {},
            **declared,
        }
        monkeypatch.setitem(connections.settings, alias, other)
        added.append(alias)

    yield add
    for alias in added:
        with suppress(AttributeError):
            del connections[alias]


class KeptOut:
    """A router that allows none of our tables."""

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        return False if app_label == "django_idempotency" else None


def test_autocommit(monkeypatch: pytest.MonkeyPatch) -> None:
    """E017: a claim that is not committed at once protects nothing."""
    monkeypatch.setitem(connections.settings["default"], "AUTOCOMMIT", False)
    assert 'DATABASES["default"]' in hints(check_databases())["E017"]


# -------------------------------------------------------------------------------- a second database


def test_a_second_database_is_not_covered(add_database: AddDatabase) -> None:
    """W001 names the database, and says how to declare it a replica."""
    add_database("warehouse")
    hint = hints(check_databases())["W001"]
    assert 'DATABASES["warehouse"]["TEST"] = {"MIRROR": "default"}' in hint
    assert 'SILENCED_SYSTEM_CHECKS = ["django_idempotency.W001"]' in hint


@pytest.mark.parametrize("guarantee", ["atomic", "lease"])
def test_a_replica_does_not_count_as_a_second_database(
    add_database: AddDatabase, configure: Configure, guarantee: str, settings: Settings
) -> None:
    """A replica is silent; so are an alias of the same database, a database with its own records
    and an empty entry.
    """
    add_database("replica", TEST={"MIRROR": "default"})
    add_database("pooled", NAME=connections.settings["default"]["NAME"], CONN_MAX_AGE=5)
    add_database("records")
    add_database("nothing", ENGINE="django.db.backends.dummy")
    records = {"BACKEND": ORM, "OPTIONS": {"using": "records"}}
    configure(STORES={"default": {"BACKEND": ORM}, "records": records}, GUARANTEE=guarantee)
    assert check_databases() == []


def test_a_second_database_is_free_of_a_lease(
    add_database: AddDatabase, configure: Configure
) -> None:
    """A lease promises no transaction, so none is missing."""
    add_database("warehouse")
    configure(GUARANTEE="lease")
    assert check_databases() == []
    configure(GUARANTEE="lease", STORES={"default": {"BACKEND": OUTSIDE}})
    assert check_databases() == []


def test_a_router_that_keeps_the_table_out(settings: Settings) -> None:
    """W002: migrate would not report it."""
    settings.DATABASE_ROUTERS = [f"{__name__}.KeptOut"]
    assert 'allow_migrate("default", "django_idempotency")' in hints(check_databases())["W002"]


@pytest.mark.parametrize(
    "declared",
    [{"ENGINE": "dj_db_conn_pool.backends.postgresql"}, {"POOL_OPTIONS": {"POOL_SIZE": 8}}],
    ids=str,
)
def test_a_pool_that_a_heartbeat_cannot_leave(
    declared: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """W079: a third-party backend has a pool of its own."""
    for name, value in declared.items():
        monkeypatch.setitem(connections.settings["default"], name, value)
    assert '"OPTIONS": {"pool": True}' in hints(check_databases())["W079"]


# ----------------------------------------------------------------------------------------- --deploy


class Answers:
    """A cursor of a server with these settings."""

    def __init__(self, **values: str) -> None:
        self.values = values

    def execute(self, sql: str, parameters: Any = None) -> None:
        pass

    def fetchall(self) -> list[tuple[str, str]]:
        return list(self.values.items())


def server(
    vendor: str, *, answers: dict[str, str], options: dict[str, Any], host: str = "db"
) -> dict[str, str]:
    connection: Any = SimpleNamespace(
        vendor=vendor,
        alias="default",
        display_name="MariaDB" if "idle_transaction_timeout" in answers else "MySQL",
        settings_dict={"USER": "shop", "HOST": host, "OPTIONS": options},
    )
    return hints(on_server(connection, Answers(**answers)))


POSTGRESQL = {
    "client_connection_check_interval": "1000",
    "idle_in_transaction_session_timeout": "60000",
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}
LIBPQ = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
SOCKET = {f"tcp_keepalives_{name}": "0" for name in ("idle", "interval", "count")}


@pytest.mark.parametrize(
    ("answers", "options", "code", "typed"),
    [
        (
            {"client_connection_check_interval": "0"},
            LIBPQ,
            "W051",
            "-c client_connection_check_interval=1s",
        ),
        (
            {"idle_in_transaction_session_timeout": "0"},
            LIBPQ,
            "W052",
            "-c idle_in_transaction_session_timeout=60s",
        ),
        (
            {"tcp_keepalives_idle": "7200"},
            LIBPQ,
            "I053",
            "ALTER ROLE shop SET tcp_keepalives_idle = 30",
        ),
        # 930 s in all.
        (
            {"tcp_keepalives_interval": "300"},
            LIBPQ,
            "I053",
            "-c tcp_keepalives_interval=10",
        ),
        (
            {},
            {},
            "I054",
            (
                "keepalives_idle=30, keepalives_interval=10, keepalives_count=3, "
                "tcp_user_timeout=30000"
            ),
        ),
        ({}, {"keepalives_idle": 30}, "I054", "tcp_user_timeout=30000"),
        ({"synchronous_commit": "off"}, LIBPQ, "W067", "-c synchronous_commit=on"),
        ({"fsync": "off"}, LIBPQ, "W067", "fsync = on in postgresql.conf"),
    ],
)
def test_postgresql(
    answers: dict[str, str], options: dict[str, Any], code: str, typed: str
) -> None:
    """Each setting that keeps a dead worker's key locked is found, one by one."""
    found = server("postgresql", answers={**POSTGRESQL, **answers}, options=options)
    assert list(found) == [code]
    assert typed in found[code]


@pytest.mark.parametrize(
    ("answers", "options"),
    [
        (POSTGRESQL, LIBPQ),
        ({**POSTGRESQL, **SOCKET}, {}),  # the other end of a Unix socket cannot vanish
        # A local flush is one, whatever the replicas have.
        ({**POSTGRESQL, "synchronous_commit": "local", "fsync": "on"}, LIBPQ),
        (POSTGRESQL, {"service": "shop"}),  # pg_service.conf may set it
        # PostgreSQL 13.
        (
            {k: v for k, v in POSTGRESQL.items() if k != "client_connection_check_interval"},
            LIBPQ,
        ),
    ],
)
def test_postgresql_is_silent(answers: dict[str, str], options: dict[str, Any]) -> None:
    """Settings that follow the hints are silent, and so are those without effect."""
    assert server("postgresql", answers=answers, options=options) == {}


GRANTED = {
    "max_connections": "100",
    "superuser_reserved_connections": "3",
    "role": "-1",
    "database": "-1",
}


@pytest.mark.parametrize(
    ("pool", "granted", "limit"),
    [
        ({"max_size": 98}, {}, "97"),
        ({"min_size": 98}, {}, "97"),
        ({"max_size": 9}, {"role": "10"}, "10"),
        (True, {"database": "5"}, "5"),  # four, unless set otherwise
        ({"max_size": 95}, {}, None),
        (True, {"database": "6"}, None),
        (None, {"role": "1"}, None),  # as many as there are threads, which the check cannot know
    ],
)
def test_a_pool_and_what_stands_beside_it(
    pool: Any, granted: dict[str, str], limit: str | None
) -> None:
    """W078: a pool that may take every connection granted leaves none for the heartbeat."""
    found = server(
        "postgresql", answers={**POSTGRESQL, **GRANTED, **granted}, options={**LIBPQ, "pool": pool}
    )
    assert list(found) == ([] if limit is None else ["W078"])
    if limit is not None:
        assert f'"max_size": {max(1, int(limit) - 2)}}}' in found["W078"]


MYSQL = {"wait_timeout": "60", "innodb_rollback_on_timeout": "OFF"}
MARIADB = {
    "wait_timeout": "28800",
    "idle_transaction_timeout": "60",
    "innodb_rollback_on_timeout": "OFF",
}
TIMEOUTS = {"connect_timeout": 5, "read_timeout": 60}


@pytest.mark.parametrize(
    ("answers", "options", "code", "typed"),
    [
        (
            {**MARIADB, "idle_transaction_timeout": "0"},
            TIMEOUTS,
            "W055",
            "SET SESSION idle_transaction_timeout=60",
        ),
        ({**MYSQL, "wait_timeout": "28800"}, TIMEOUTS, "W055", "SET SESSION wait_timeout=60"),
        (
            {**MARIADB, "innodb_rollback_on_timeout": "ON"},
            TIMEOUTS,
            "W056",
            "innodb_rollback_on_timeout=OFF",
        ),
        (MARIADB, {"connect_timeout": 5}, "W057", "read_timeout=60"),
        (MYSQL, {"read_timeout": 5}, "W057", "connect_timeout=5"),
        (
            {**MYSQL, "innodb_flush_log_at_trx_commit": "2"},
            TIMEOUTS,
            "W067",
            "innodb_flush_log_at_trx_commit=1 under",
        ),
    ],
)
def test_mysql(answers: dict[str, str], options: dict[str, Any], code: str, typed: str) -> None:
    """MariaDB has a limit of its own for idle transactions; MySQL uses that of the session."""
    found = server("mysql", answers=answers, options=options)
    assert list(found) == [code]
    assert typed in found[code]


def test_mysql_is_silent() -> None:
    """Settings that follow the hints are silent; a socket needs no timeouts."""
    assert server("mysql", answers=MARIADB, options=TIMEOUTS) == {}
    assert server("mysql", answers=MYSQL, options=TIMEOUTS) == {}
    assert server("mysql", answers=MYSQL, options={}, host="/run/mysqld.sock") == {}
    assert server("mysql", answers=MYSQL, options={"unix_socket": "/run/mysqld.sock"}) == {}


@pytest.mark.parametrize(
    ("vendor", "answers", "options"),
    [("postgresql", POSTGRESQL, LIBPQ), ("mysql", MARIADB, TIMEOUTS)],
)
def test_a_compatible_server_that_lacks_a_variable(
    vendor: str, answers: dict[str, str], options: dict[str, Any]
) -> None:
    """A variable that the server lacks raises no finding: CockroachDB, Aurora and TiDB each have
    their own list.
    """
    for missing in answers:
        known = {name: value for name, value in answers.items() if name != missing}
        assert server(vendor, answers=known, options=options).keys() <= (
            {"W055"} if missing[:4] == "idle" else set()
        )
    assert server(vendor, answers={}, options=options) == {}


def test_a_dialect_of_the_projects_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """One derived from ours gets the checks of ours, and any other gets none."""
    derived = type("Derived", (PostgreSQL,), {"vendor": "derived"})
    other = type("Other", (Dialect,), {"vendor": "other"})
    monkeypatch.setattr(dialects, "_DIALECTS", [derived, other, *dialects._DIALECTS])
    idle = {**POSTGRESQL, "idle_in_transaction_session_timeout": "0"}
    assert server("derived", answers=idle, options=LIBPQ).keys() == {"W052"}
    assert server("other", answers=idle, options=LIBPQ) == {}
    assert server("unknown", answers=idle, options=LIBPQ) == {}


#: The settings of the testproject's databases, set up for tests.
EXPECTED = {
    "sqlite": {"W058", "W067"},
    "postgresql": {"W051", "W052", "W067", "I053", "I054"},
    "mysql": {"W055", "W056", "W057", "W067"},
}


def test_a_stock_postgresql() -> None:
    """One line mends all of it, and stands in one hint; what only concerns hosts that vanish is no
    warning.
    """
    stock = {
        **dict.fromkeys(POSTGRESQL, "0"),
        "tcp_keepalives_idle": "7200",
        "tcp_keepalives_interval": "75",
    }
    found = server(
        "postgresql",
        answers={**stock, "tcp_keepalives_count": "9"},
        options={"options": "-c search_path=shop"},
    )
    assert list(found) == ["W051", "W052", "I053", "I054"]
    settings: dict[str, Any] = {"DATABASES": {"default": {}}}
    typed, _, _ = found["W051"].removeprefix("Type ").partition(", or in SQL")
    exec(typed, settings)
    assert settings["DATABASES"]["default"]["OPTIONS"] == {
        **LIBPQ,
        "options": f"-c search_path=shop {FOLLOWED['postgresql']['options']}",
    }
    assert [hint.startswith("Type the OPTIONS above") for hint in found.values()] == [
        False,
        True,
        True,
        True,
    ]


@pytest.mark.django_db
def test_the_real_server_is_asked() -> None:
    """Each statement works on the real server, and the check finds only what is expected."""
    found = hints(check_deployment())
    assert found.keys() <= EXPECTED[connection.vendor]
    assert found.keys() & {"W058", "I054", "W057"}


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
            hint = hints(on_server(made, cursor)).get("W067")
    finally:
        made.close()
    assert (hint is not None) is found
    assert hint is None or '["init_command"] = "PRAGMA synchronous=FULL"' in hint


@pytest.mark.django_db
@pytest.mark.skipif("connection.vendor != 'postgresql'", reason="Django pools PostgreSQL only")
def test_the_real_server_reports_its_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """W078 for a pool that no server would fill, and not for a small one."""
    connection.ensure_connection()
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "pool", {"max_size": 1_000_000})
    assert "W078" in hints(check_deployment())
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "pool", {"max_size": 2})
    assert "W078" not in hints(check_deployment())


#: OPTIONS as the hints say.
FOLLOWED = {
    "postgresql": {
        "options": "-c client_connection_check_interval=1s -c "
        "idle_in_transaction_session_timeout=60s "
        "-c tcp_keepalives_idle=30 -c tcp_keepalives_interval=10 -c tcp_keepalives_count=3",
        **LIBPQ,
    },
    "mysql": {
        "init_command": "SET SESSION idle_transaction_timeout=60",
        "connect_timeout": 5,
        "read_timeout": 60,
        "write_timeout": 60,
    },
}


@pytest.mark.django_db
@pytest.mark.skipif("connection.vendor == 'sqlite'", reason="it has no settings to follow")
def test_what_the_hints_say_works() -> None:
    """The server accepts what the hints say to type, and then the checks are silent."""
    followed = connections["default"].copy()
    followed.settings_dict["OPTIONS"].update(FOLLOWED[followed.vendor])
    try:
        with followed.cursor() as cursor:
            # These are about the server alone.
            assert hints(on_server(followed, cursor)).keys() <= {"W056", "W067"}
    finally:
        followed.close()


@pytest.mark.django_db
def test_other_databases_are_not_asked() -> None:
    """`check --deploy --database other` does not query ours."""
    assert check_deployment(databases=["other"]) == []
    assert check_deployment(databases=["default"]) != []


@pytest.mark.django_db
def test_migrations_that_are_not_applied(capsys: pytest.CaptureFixture[str]) -> None:
    """E050 when deployed.

    With --database it is a warning: an error would stop the command that applies them.
    """
    assert check_migrations(databases=["default"]) == []
    MigrationRecorder(connection).record_unapplied("django_idempotency", "0001_initial")
    asked = hints(check_migrations(databases=["default"]))
    command = "python manage.py migrate django_idempotency --database=default"
    assert (
        command in hints(check_deployment())["E050"],
        list(asked),
        command in asked["W080"],
    ) == (
        True,
        ["W080"],
        True,
    )
    assert check_migrations(databases=["other"]) == check_migrations() == []
    call_command("check", databases=["default"])
    assert "W080" in capsys.readouterr().err


def test_a_database_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """W050 instead of a traceback."""

    def cursor() -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(connections["default"], "cursor", cursor)
    found = check_deployment()
    assert list(hints(found)) == ["W050"]
    assert "connection refused" in found[0].msg


# -------------------------------------------------------------------------------------- testproject


@pytest.mark.django_db  # SQLite is asked once whether it knows JSON
def test_the_testproject_is_clean() -> None:
    """`manage.py check` finds nothing in all of Django."""
    assert [each for each in checks.run_checks() if not each.is_silenced()] == []


@pytest.mark.django_db
def test_the_testproject_deployed(capsys: pytest.CaptureFixture[str]) -> None:
    """`manage.py check --deploy` lists what a demo's settings lack, and no error of ours."""
    with suppress(SystemCheckError):
        call_command("check", deploy=True)
    found = {
        each.id
        for each in checks.run_checks(include_deployment_checks=True)
        if not each.is_silenced()
    }
    ours = {
        str(code).removeprefix("django_idempotency.")
        for code in found
        if str(code).startswith("django_idem")
    }
    assert ours <= EXPECTED[connection.vendor]
    assert all(
        str(code).startswith(("django_idempotency.W", "django_idempotency.I", "security.W"))
        for code in found
    )


def test_a_check_never_connects(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only --deploy checks connect: `manage.py check` also runs where there is no database, such as
    in a build.
    """
    monkeypatch.setattr(connections["default"], "cursor", lambda: pytest.fail("connected"))
    assert [
        each for each in checks.run_checks(tags=["idempotency"]) if not each.is_silenced()
    ] == []
