"""Checks of server settings that decide how long the key of a dead worker stays locked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from django.core.checks import CheckMessage

from ..stores.orm.dialects import Dialect, InnoDB, PostgreSQL, SQLite, dialect_class
from .catalogue import finding

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

#: Seconds. After this, the clients of a vanished worker have given up.
PATIENCE = 600


def on_server(connection: BaseDatabaseWrapper, cursor: Any) -> Iterator[CheckMessage]:
    """Yield a message for each server setting that should be different."""
    found = dialect_class(connection)
    for kind, ask in _KINDS.items():
        if found is not None and issubclass(found, kind):
            yield from ask(connection, cursor)


def _postgresql(connection: BaseDatabaseWrapper, cursor: Any) -> Iterator[CheckMessage]:
    # The values of this session, whether set by OPTIONS, the role, the database or the server.
    cursor.execute("SELECT name, setting FROM pg_settings WHERE name LIKE 'tcp_keep%%' OR name IN (%s, %s)", _SESSION)
    values = {name: int(setting) for name, setting in cursor.fetchall()}
    facts = {"using": connection.alias, "user": connection.settings_dict["USER"] or "…"}
    wrong: dict[str, dict[str, Any]] = {}
    if values.get(_SESSION[0]) == 0:  # absent before PostgreSQL 14
        wrong["W051"] = {"client_connection_check_interval": "1s"}
    if values.get(_SESSION[1]) == 0:
        wrong["W052"] = {"idle_in_transaction_session_timeout": "60s"}
    # 0: a Unix socket, whose other end cannot vanish. A compatible server without these settings is treated the same.
    idle, interval, count = (values.get(f"tcp_keepalives_{name}", 0) for name in ("idle", "interval", "count"))
    silence = idle + interval * count
    if idle and silence > PATIENCE:
        wrong["I053"] = {"tcp_keepalives_idle": 30, "tcp_keepalives_interval": 10, "tcp_keepalives_count": 3}
    options = connection.settings_dict["OPTIONS"]
    ours = idle and "service" not in options and not {"keepalives_idle", "tcp_user_timeout"} <= options.keys()
    typed = _options(connection.alias, options.get("options", ""), wrong, _LIBPQ if ours else {})
    for code in (*wrong, *(["I054"] if ours else [])):
        yield finding(code, options=typed, idle=silence, **facts)
        typed = "the OPTIONS above"  # one block for all
    if options.get("pool"):
        yield from _pooled(connection, cursor, facts)


def _options(using: str, known: str, wrong: dict[str, dict[str, Any]], more: dict[str, int]) -> str:
    """Return one line for the settings, that mends everything."""
    flags = [f"-c {name}={value}" for each in wrong.values() for name, value in each.items()]
    given = [f"options={' '.join(filter(None, [known, *flags]))!r}"] if flags else []
    given += [f"{name}={value}" for name, value in more.items()]
    return f'DATABASES["{using}"].setdefault("OPTIONS", {{}}).update({", ".join(given)})'


def _pooled(connection: BaseDatabaseWrapper, cursor: Any, facts: dict[str, Any]) -> Iterator[CheckMessage]:
    """Compare the connections that a process may open with those that the server grants."""
    pool = connection.settings_dict["OPTIONS"]["pool"]
    given = pool if isinstance(pool, dict) else {}
    size = given.get("max_size") or given.get("min_size", 4)  # psycopg_pool's own default
    cursor.execute(_GRANTED)
    granted = {name: int(number) for name, number in cursor.fetchall()}
    free = granted["max_connections"] - granted["superuser_reserved_connections"]
    limits = [free, *(granted[name] for name in ("role", "database") if granted[name] >= 0)]  # -1: no limit
    if size + APART > min(limits):
        fits = max(1, min(limits) - APART)
        yield finding("W078", needed=size + APART, size=size, limit=min(limits), fits=fits, **facts)


#: For libpq, the client's library. The last is in milliseconds.
_LIBPQ = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3, "tcp_user_timeout": 30000}
#: Connections that our own threads open: the heartbeat's, and that of retried settles.
APART = 2
_GRANTED = """
    SELECT name, setting FROM pg_settings WHERE name IN ('max_connections', 'superuser_reserved_connections')
    UNION ALL SELECT 'role', rolconnlimit::text FROM pg_roles WHERE rolname = current_user
    UNION ALL SELECT 'database', datconnlimit::text FROM pg_database WHERE datname = current_database()
"""

_SESSION = ["client_connection_check_interval", "idle_in_transaction_session_timeout"]


def _mysql(connection: BaseDatabaseWrapper, cursor: Any) -> Iterator[CheckMessage]:
    cursor.execute(
        "SHOW VARIABLES WHERE variable_name IN ('wait_timeout', 'idle_transaction_timeout', 'innodb_rollback_on_timeout')"
    )
    values = dict(cursor.fetchall())
    mariadb = "idle_transaction_timeout" in values
    facts = {"using": connection.alias, "server": connection.display_name}
    # 0: no limit. A transaction cannot be idle for longer than its session.
    limits = [int(values[name]) for name in ("wait_timeout", "idle_transaction_timeout") if int(values.get(name, 0))]
    limit = min(limits, default=0)
    if limit > PATIENCE:
        variable = "idle_transaction_timeout" if mariadb else "wait_timeout"
        yield finding("W055", limit=f"{limit} s", variable=variable, **facts)
    if values.get("innodb_rollback_on_timeout") == "ON":
        yield finding("W056", **facts)
    options = connection.settings_dict["OPTIONS"]
    by_socket = "unix_socket" in options or str(connection.settings_dict["HOST"]).startswith("/")
    missing = [name for name in ("connect_timeout", "read_timeout") if name not in options]
    if missing and not by_socket:
        yield finding("W057", missing=" and no ".join(missing), using=connection.alias)


def _sqlite(connection: BaseDatabaseWrapper, _: Any) -> Iterator[CheckMessage]:
    yield finding("W058", using=connection.alias)


#: Also for a dialect of a project's own that is derived from one of these.
_KINDS: dict[type[Dialect], Callable[[BaseDatabaseWrapper, Any], Iterator[CheckMessage]]] = {
    PostgreSQL: _postgresql,
    InnoDB: _mysql,
    SQLite: _sqlite,
}
