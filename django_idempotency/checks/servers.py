"""What a server is set to, where it decides how long the key of a dead worker stays locked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from django.core.checks import CheckMessage

from .catalogue import finding

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

#: Seconds. Longer than this, and the clients of a vanished worker have given up.
PATIENCE = 600


def on_server(connection: BaseDatabaseWrapper, cursor: Any) -> Iterator[CheckMessage]:
    """Yield what a server should be told."""
    ask: dict[str, Callable[[BaseDatabaseWrapper, Any], Iterator[CheckMessage]]] = {
        "postgresql": _postgresql,
        "mysql": _mysql,
        "sqlite": _sqlite,
    }
    return ask[connection.vendor](connection, cursor)


def _postgresql(connection: BaseDatabaseWrapper, cursor: Any) -> Iterator[CheckMessage]:
    # The values of this session: whatever sets them, OPTIONS, the role, the database or the server.
    cursor.execute("SELECT name, setting FROM pg_settings WHERE name LIKE 'tcp_keep%%' OR name IN (%s, %s)", _SESSION)
    values = {name: int(setting) for name, setting in cursor.fetchall()}
    facts = {"using": connection.alias, "user": connection.settings_dict["USER"] or "…"}
    if values.get(_SESSION[0]) == 0:  # absent before PostgreSQL 14
        yield finding("W051", **facts)
    if values[_SESSION[1]] == 0:
        yield finding("W052", **facts)
    idle = values["tcp_keepalives_idle"]  # 0: a Unix socket, whose other end cannot vanish
    silence = idle + values["tcp_keepalives_interval"] * values["tcp_keepalives_count"]
    if idle and silence > PATIENCE:
        yield finding("W053", idle=silence, **facts)
    options = connection.settings_dict["OPTIONS"]
    if idle and "service" not in options and not {"keepalives_idle", "tcp_user_timeout"} <= options.keys():
        yield finding("W054", **facts)


_SESSION = ["client_connection_check_interval", "idle_in_transaction_session_timeout"]


def _mysql(connection: BaseDatabaseWrapper, cursor: Any) -> Iterator[CheckMessage]:
    cursor.execute(
        "SHOW VARIABLES WHERE variable_name IN ('wait_timeout', 'idle_transaction_timeout', 'innodb_rollback_on_timeout')"
    )
    values = dict(cursor.fetchall())
    mariadb = "idle_transaction_timeout" in values
    facts = {"using": connection.alias, "server": connection.display_name}
    # 0: no limit. A transaction is idle as long as its session at most.
    limit = min(int(values["wait_timeout"]), int(values.get("idle_transaction_timeout", 0)) or PATIENCE * PATIENCE)
    if limit > PATIENCE:
        variable = "idle_transaction_timeout" if mariadb else "wait_timeout"
        yield finding("W055", limit=f"{limit} s", variable=variable, **facts)
    if values["innodb_rollback_on_timeout"] == "ON":
        yield finding("W056", **facts)
    options = connection.settings_dict["OPTIONS"]
    by_socket = "unix_socket" in options or str(connection.settings_dict["HOST"]).startswith("/")
    missing = [name for name in ("connect_timeout", "read_timeout") if name not in options]
    if missing and not by_socket:
        yield finding("W057", missing=" and no ".join(missing), using=connection.alias)


def _sqlite(connection: BaseDatabaseWrapper, _: Any) -> Iterator[CheckMessage]:
    yield finding("W058", using=connection.alias)
