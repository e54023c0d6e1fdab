"""The services beside the databases: tests skip missing ones, unless REQUIRE_SERVICES says that
they must be there.
"""

from __future__ import annotations

import os
import shutil
import socket
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import pytest

REDIS = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/9")

#: The folders of the servers' programs.
SERVERS_PATH = f"{os.defpath}:/usr/sbin:/usr/local/sbin"
#: Debian's newest PostgreSQL first: `initdb` and `postgres` are on no path.
POSTGRESQL_PATH = os.pathsep.join(
    map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True))
)

#: Service → its name, and the programs that must be installed.
PROGRAMS = {
    "rabbitmq": ("RabbitMQ", "rabbitmq-server"),
    "mariadb-server": ("MariaDB's server", "mariadbd"),
    "postgresql-server": ("PostgreSQL's server", "initdb", "postgres"),
    "pgbouncer": ("PgBouncer", "pgbouncer"),
    "prometheus": ("Prometheus", "prometheus", "promtool"),
    "node": ("Node.js", "node"),
}


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


#: Marks of tests: `needs(service)`. conftest.py skips what cannot run here.
needs_redis = pytest.mark.needs("redis")
#: Only its program: the tests start a node of their own.
needs_rabbitmq = pytest.mark.needs("rabbitmq")
#: Only its program: a test starts a server of its own, with a setting that cannot be changed at run
#: time.
needs_mariadb_server = pytest.mark.needs("mariadb-server")
#: Only its programs: a test starts a server of its own, and restarts it.
needs_postgresql_server = pytest.mark.needs("postgresql-server")
#: Only its program: the tests put it in front of the database.
needs_pgbouncer = pytest.mark.needs("pgbouncer")
#: Only its programs: a test starts a server of its own, and rules are checked.
needs_prometheus = pytest.mark.needs("prometheus")
#: Only its program: it runs our scripts.
needs_node = pytest.mark.needs("node")


@cache
def missing(service: str) -> str:
    """Return why a service cannot be used, or "".

    REQUIRE_SERVICES=1 assumes that each is there: its tests fail.
    """
    if os.environ.get("REQUIRE_SERVICES") == "1":
        return ""
    if service == "redis":
        port = urlsplit(REDIS).port or 6379
        return "" if answers(port) else f"Redis does not answer on port {port}."
    name, *programs = PROGRAMS[service]
    return "" if all(map(program, programs)) else f"{name} is not installed."


def program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path=f"{SERVERS_PATH}:{POSTGRESQL_PATH}")
