"""Checks for `--deploy`, which query the servers: what decides how long the key of a dead worker
stays locked.

And what loses records, or never deletes them, where a store is not in a database.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from django.core.checks import CheckMessage
from django.db import Error, connections

from ... import conf
from ...checks.databases import is_unmigrated, record_databases
from ...checks.settings import after_settings
from ...checks.stores import built, nested_in
from ...checks.urlconf import policies, views
from ...errors import StoreUnavailable
from ...inspection.failures import reason
from ...stores.base import BaseStore, layers, records_of
from ...stores.check_messages import Finding, shown
from ...stores.orm.dialects import InnoDB, PostgreSQL, SQLite, dialect_class

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


class E050(Finding):
    """Migrations of django_idempotency are not applied to the database "%(using)s".

    Type python manage.py migrate django_idempotency --database=%(using)s
    """


class I053(Finding):
    """PostgreSQL ("%(using)s") drops a silent client only after %(idle)s s: the key of a vanished
    host stays locked that long.

    Type %(options)s, or in SQL, for each: ALTER ROLE %(user)s SET tcp_keepalives_idle = 30.
    """


class I054(Finding):
    """DATABASES["%(using)s"]["OPTIONS"] sets no limit for a silent PostgreSQL server: a worker
    waits for it until TCP gives up, which may take hours.

    Type %(options)s.
    """


class W050(Finding):
    """The database "%(using)s" is not responding, so its settings were not checked: %(error)s.

    Start it, then type python manage.py check --deploy again.
    """


class W051(Finding):
    """PostgreSQL ("%(using)s") does not check whether a client is still there while a statement
    runs: the key of a dead worker stays locked until its statement ends.

    Type %(options)s, or in SQL: ALTER ROLE %(user)s SET client_connection_check_interval = '1s'.
    """


class W052(Finding):
    """PostgreSQL ("%(using)s") lets a transaction stay idle forever: a worker that hangs in its
    view holds its key.

    Type %(options)s, or in SQL: ALTER ROLE %(user)s SET idle_in_transaction_session_timeout = '60s'
    (longer than your slowest call to a provider).
    """


class W055(Finding):
    """%(server)s ("%(using)s") lets a transaction stay idle for %(limit)s: a worker that hangs, or
    whose host vanished, holds its key that long.

    Type DATABASES["%(using)s"]["OPTIONS"]["init_command"] = "SET SESSION %(variable)s=60" (longer
    than your slowest call to a provider), and "CONN_HEALTH_CHECKS": True beside OPTIONS.
    """


class W056(Finding):
    """%(server)s ("%(using)s") has innodb_rollback_on_timeout=ON: a lock timeout that a view
    catches rolls back half of its transaction, including the lock on its key, and "atomic" cannot
    detect it.

    Type innodb_rollback_on_timeout=OFF under [mysqld] in my.cnf, and restart the server.
    """


class W057(Finding):
    """DATABASES["%(using)s"]["OPTIONS"] has no %(missing)s: a worker waits for a server that
    vanished until TCP gives up, which may take hours.

    Type DATABASES["%(using)s"]["OPTIONS"].update(connect_timeout=5, read_timeout=60,
    write_timeout=60), with a read_timeout above your slowest statement.
    """


class W058(Finding):
    """The records are in SQLite ("%(using)s"), which has one writer: requests with different keys
    queue for it.

    Type DATABASES["%(using)s"]["ENGINE"] = "django.db.backends.postgresql" for more than one
    worker; if one is enough, %(silence)s.
    """


class W060(Finding):
    """The store "%(alias)s" (%(backend)s) is not responding, so its server was not checked:
    %(error)s.

    Start it, or allow this host and its credentials to read the server's settings; then type python
    manage.py check --deploy again.
    """


class W067(Finding):
    """%(server)s ("%(using)s") has %(setting)s: a COMMIT returns before it is on disk. After a
    crash of the server a claim may be forgotten, and with it that a provider was paid.

    Type %(options)s.
    """


class W078(Finding):
    """A process may open %(needed)s connections to DATABASES["%(using)s"] (a pool of %(size)s, and
    two outside it: for the heartbeat, and for settles that are retried), but PostgreSQL grants
    "%(user)s" only %(limit)s.

    Type DATABASES["%(using)s"]["OPTIONS"]["pool"] = {"min_size": 1, "max_size": %(fits)s} or less,
    since all your processes share that limit; or raise max_connections, or the limit in ALTER ROLE
    %(user)s CONNECTION LIMIT.
    """


#: Seconds. After this, the clients of a vanished worker have given up.
PATIENCE = 600
#: Connections that our own threads open: the heartbeat's, and that of retried settles.
APART = 2


@after_settings
def check_deployment(databases: Collection[str] | None = None, **_: Any) -> Iterator[CheckMessage]:
    """Check that the databases of the ORM stores free the keys of a dead or hanging worker in
    time.
    """
    for using in record_databases():
        if databases is None or using in databases:
            try:
                with connections[using].cursor() as cursor:
                    found = [*on_server(connections[using], cursor)]
                if is_unmigrated(using):
                    found.append(E050(using=using))
            except Error as error:
                found = [W050(using=using, error=shown(error))]
            yield from found


def on_server(connection: BaseDatabaseWrapper, cursor: Any) -> Iterator[CheckMessage]:
    """Yield a message for each server setting that should be different."""
    found = dialect_class(connection)
    # Also for a dialect of a project's own that is derived from one of these.
    for kind, ask in ((PostgreSQL, _postgresql), (InnoDB, _mysql), (SQLite, _sqlite)):
        if found is not None and issubclass(found, kind):
            yield from ask(connection, cursor)


# --------------------------------------------------------------------------------------- PostgreSQL

_SESSION = ["client_connection_check_interval", "idle_in_transaction_session_timeout"]
#: What a COMMIT waits for.
_FLUSHES = ["synchronous_commit", "fsync"]
#: For libpq, the client's library. The last is in milliseconds.
_LIBPQ = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30000,
}
_GRANTED = """
    SELECT name, setting FROM pg_settings WHERE name IN ('max_connections', 'superuser_reserved_connections')
    UNION ALL SELECT 'role', rolconnlimit::text FROM pg_roles WHERE rolname = current_user
    UNION ALL SELECT 'database', datconnlimit::text FROM pg_database WHERE datname = current_database()
"""


def _postgresql(connection: BaseDatabaseWrapper, cursor: Any) -> Iterator[CheckMessage]:
    # The values of this session, whether set by OPTIONS, the role, the database or the server.
    cursor.execute(
        "SELECT name, setting FROM pg_settings WHERE name LIKE 'tcp_keep%%' OR name IN "
        "(%s, %s, %s, %s)",
        [*_SESSION, *_FLUSHES],
    )
    given = dict(cursor.fetchall())
    flushes = {name: given.pop(name, "on") for name in _FLUSHES}
    values = {name: int(setting) for name, setting in given.items()}
    facts = {"using": connection.alias, "user": connection.settings_dict["USER"] or "…"}
    wrong: dict[type[Finding], dict[str, Any]] = {}
    if values.get(_SESSION[0]) == 0:  # absent before PostgreSQL 14
        wrong[W051] = {"client_connection_check_interval": "1s"}
    if values.get(_SESSION[1]) == 0:
        wrong[W052] = {"idle_in_transaction_session_timeout": "60s"}
    # 0: a Unix socket, whose other end cannot vanish. A compatible server without these settings is
    # treated the same.
    idle, interval, count = (
        values.get(f"tcp_keepalives_{name}", 0) for name in ("idle", "interval", "count")
    )
    silence = idle + interval * count
    if idle and silence > PATIENCE:
        wrong[I053] = {
            "tcp_keepalives_idle": 30,
            "tcp_keepalives_interval": 10,
            "tcp_keepalives_count": 3,
        }
    if flushes["synchronous_commit"] == "off":
        wrong[W067] = {"synchronous_commit": "on"}
    options = connection.settings_dict["OPTIONS"]
    ours = (
        idle
        and "service" not in options
        and not {"keepalives_idle", "tcp_user_timeout"} <= options.keys()
    )
    typed = _options(connection.alias, options.get("options", ""), wrong, _LIBPQ if ours else {})
    for finding in (*wrong, *([I054] if ours else [])):
        yield finding(
            options=typed,
            idle=silence,
            server="PostgreSQL",
            setting="synchronous_commit=off",
            **facts,
        )
        typed = "the OPTIONS above"  # one block for all
    if flushes["fsync"] == "off":
        yield W067(
            options="fsync = on in postgresql.conf, and restart the server",
            server="PostgreSQL",
            setting="fsync=off",
            **facts,
        )
    if options.get("pool"):
        yield from _pooled(connection, cursor, facts)


def _options(
    using: str, known: str, wrong: dict[type[Finding], dict[str, Any]], more: dict[str, int]
) -> str:
    """Return one line for the settings, that mends everything."""
    flags = [f"-c {name}={value}" for each in wrong.values() for name, value in each.items()]
    given = [f"options={' '.join(filter(None, [known, *flags]))!r}"] if flags else []
    given += [f"{name}={value}" for name, value in more.items()]
    return f'DATABASES["{using}"].setdefault("OPTIONS", {{}}).update({", ".join(given)})'


def _pooled(
    connection: BaseDatabaseWrapper, cursor: Any, facts: dict[str, Any]
) -> Iterator[CheckMessage]:
    """Compare the connections that a process may open with those that the server grants."""
    pool = connection.settings_dict["OPTIONS"]["pool"]
    given = pool if isinstance(pool, dict) else {}
    size = given.get("max_size") or given.get("min_size", 4)  # psycopg_pool's own default
    cursor.execute(_GRANTED)
    granted = {name: int(number) for name, number in cursor.fetchall()}
    free = granted["max_connections"] - granted["superuser_reserved_connections"]
    # -1: no limit.
    limit = min([free, *(granted[name] for name in ("role", "database") if granted[name] >= 0)])
    if size + APART > limit:
        yield W078(needed=size + APART, size=size, limit=limit, fits=max(1, limit - APART), **facts)


# ------------------------------------------------------------------------ MariaDB, MySQL and SQLite


def _mysql(connection: BaseDatabaseWrapper, cursor: Any) -> Iterator[CheckMessage]:
    cursor.execute(
        "SHOW VARIABLES WHERE variable_name IN ('wait_timeout', "
        "'idle_transaction_timeout', 'innodb_rollback_on_timeout',"
        " 'innodb_flush_log_at_trx_commit')"
    )
    values = dict(cursor.fetchall())
    facts = {"using": connection.alias, "server": connection.display_name}
    # 0: no limit. A transaction cannot be idle for longer than its session.
    limits = [
        int(values[name])
        for name in ("wait_timeout", "idle_transaction_timeout")
        if int(values.get(name, 0))
    ]
    limit = min(limits, default=0)
    if limit > PATIENCE:
        mariadb = "idle_transaction_timeout" in values
        yield W055(
            limit=f"{limit} s",
            variable="idle_transaction_timeout" if mariadb else "wait_timeout",
            **facts,
        )
    if values.get("innodb_rollback_on_timeout") == "ON":
        yield W056(**facts)
    flush = "innodb_flush_log_at_trx_commit"
    if values.get(flush, "1") != "1":
        typed = f"{flush}=1 under [mysqld] in my.cnf, and restart the server"
        yield W067(setting=f"{flush}={values[flush]}", options=typed, **facts)
    options = connection.settings_dict["OPTIONS"]
    by_socket = "unix_socket" in options or str(connection.settings_dict["HOST"]).startswith("/")
    missing = [name for name in ("connect_timeout", "read_timeout") if name not in options]
    if missing and not by_socket:
        yield W057(missing=" and no ".join(missing), using=connection.alias)


def _sqlite(connection: BaseDatabaseWrapper, cursor: Any) -> Iterator[CheckMessage]:
    yield W058(using=connection.alias)
    level = int(cursor.execute("PRAGMA synchronous").fetchone()[0])
    journal = cursor.execute("PRAGMA journal_mode").fetchone()[0]
    # 2 is FULL; NORMAL flushes a journal, and not a WAL.
    if level == 0 or (level == 1 and journal == "wal"):
        typed = (
            f'DATABASES["{connection.alias}"].setdefault("OPTIONS", {{}})["init_command"] = '
            '"PRAGMA synchronous=FULL"'
        )
        setting = f"PRAGMA synchronous={'OFF' if level == 0 else 'NORMAL'}"
        yield W067(using=connection.alias, server="SQLite", setting=setting, options=typed)


# ------------------------------------------------------------------------------------ other servers


@after_settings
def check_servers(**_: Any) -> Iterator[CheckMessage]:
    """Check that the servers of the stores keep records, and delete them once expired."""
    asked = set()
    # First those that need more of a server.
    for alias in sorted(conf.get("STORES"), key=_holds_copies_only):
        store = built(alias)
        if store is None:
            continue
        if nested_in(alias):  # a nested store is checked under its own alias
            yield from _asked(alias, store)
        elif (where := records_of(store)) not in asked:
            asked.add(where)
            for layer in layers(store):
                yield from _asked(alias, layer)


def _asked(alias: str, store: BaseStore) -> list[CheckMessage]:
    try:
        return list(store.check(alias, deploy=True, copies_only=_holds_copies_only(alias)))
    except StoreUnavailable as error:
        return [W060(alias=alias, backend=type(store).__name__, error=reason(error).rstrip("."))]
    except Exception as error:  # noqa: BLE001 - a driver's error, such as a wrong region or address
        return [W060(alias=alias, backend=type(store).__name__, error=shown(error))]


def _holds_copies_only(alias: str) -> bool:
    """Is a store only used as the front of others?"""
    inside = [nested_in(name) for name in conf.get("STORES")]
    fronts = {names["front"] for names in inside if "front" in names}
    others = {value for names in inside for name, value in names.items() if name != "front"}
    if alias not in fronts or alias in others or alias == conf.get("STORE"):
        return False
    return all(
        conf.field(policy, "store") != alias
        for callback, _ in views()
        for policy in policies(callback)
    )
