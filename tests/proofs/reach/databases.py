"""PostgreSQL in its versions, and behind PgBouncer; and MySQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from ...run import selection
from ...support.database_servers import PostgreSQLServer, mysql, pgbouncer, postgresql
from . import obtaining
from .running import Result, of_database, run
from .unstable import inside, unstable

#: The contract, races, guards, purges, partitions, statement counts, and calls that break.
TESTS = ["tests/stores/orm"]
TESTS += [f"tests/stores/test_{name}.py" for name in ("breakage", "races", "waiting")]
#: Each process of pytest makes a database. It is left to the server's end: a pooler holds
#: connections to it.
OPTIONS = ("-n", "2", "--reuse-db", "--create-db", "-p", "no:randomly", "-m", "not faults")
#: Not through a pooler: they choose a schema with a parameter of the connection's start, or bring a
#: pooler of their own.
BESIDE_A_POOLER = (
    "--ignore=tests/stores/orm/test_partitions.py",
    "--ignore=tests/stores/orm/test_pgbouncer.py",
)
#: MySQL is in no run of the gate: all that another server can change.
ON_MYSQL = [
    *("tests/stores", "tests/engine", "tests/entry_points", "tests/functions", "tests/http"),
    *("tests/admin", "tests/management", "tests/checks", "tests/scopes"),
    *("tests/contrib/batches", "tests/contrib/outbox", "tests/contrib/steps"),
    *(f"tests/faults/test_{name}.py" for name in ("kills", "outages", "stops", "leases")),
]
MYSQL_OPTIONS = (
    *("-n", "2", "--dist=worksteal", "-k", "not (redis or dynamodb)"),
    *("-m", selection("mysql", ("sqlite", "postgresql", "mariadb"))),
)


@contextmanager
def server(major: str) -> Iterator[PostgreSQLServer]:
    # More sessions than the tests have threads, and what `manage.py check --deploy` asks for.
    with postgresql(
        obtaining.postgresql(major), "max_connections=300", "client_connection_check_interval=1s"
    ) as one:
        yield one


def on_postgresql(major: str) -> Result:
    with server(major) as one:
        counts = run(TESTS, place(one.port), *OPTIONS)
        return Result(version=version(one.port), counts=counts, on=of_database(place(one.port)))


def behind_pgbouncer() -> Result:
    obtaining.debian("pgbouncer", "pgbouncer")
    with (
        server(obtaining.DEBIANS) as behind,
        pgbouncer(host="127.0.0.1", port=str(behind.port), user="postgres") as pooler,
    ):
        # Not those that kill a connection: a pooler keeps it from its server.
        tests = [each for each in TESTS if "breakage" not in each]
        counts = run(tests, place(pooler.port), *OPTIONS, *BESIDE_A_POOLER)
        return Result(
            version=f"{pooler.version()}, transaction mode, statements combined", counts=counts
        )


def on_mysql() -> Result:
    root = unstable("mysql-server-core")
    settings = ("--max-connections=300", "--innodb-flush-log-at-trx-commit=2")
    with mysql(root, inside, *settings) as one:
        environment = {"DATABASE": "mysql", "MYSQL_PORT": str(one.port)}
        counts = run(ON_MYSQL, environment, *MYSQL_OPTIONS)
        on = of_database(environment)
        return Result(version=on.server, counts=counts, on=on)


def place(port: int) -> dict[str, str]:
    return {
        "DATABASE": "postgresql",
        "POSTGRESQL_HOST": "127.0.0.1",
        "POSTGRESQL_PORT": str(port),
        "POSTGRESQL_USER": "postgres",
    }


def version(port: int) -> str:
    with psycopg.connect(
        host="127.0.0.1", port=port, user="postgres", dbname="postgres"
    ) as session:
        return (
            "PostgreSQL "
            f"{(session.info.parameter_status('server_version') or '').partition(' ')[0]}"
        )
