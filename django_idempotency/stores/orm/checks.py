"""The checks of an ORM store's options, and of the database that it is in.

Only `check_server()` connects.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from django.core.checks import CheckMessage

from ..check_messages import Finding
from ..database_checks import vendor_of
from .dialects import InnoDB, PostgreSQL, SQLite, dialect_class, served

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


class E015(Finding):
    """IDEMPOTENCY["STORES"]["%(alias)s"] uses the database "%(using)s", whose kind is "%(vendor)s".

    Type "OPTIONS": {"using": …} with a database of PostgreSQL, MariaDB, MySQL or SQLite, or
    register a dialect for this kind.
    """


class E056(Finding):
    """The server of the database "%(using)s" has innodb_rollback_on_timeout=ON: a lock timeout that
    a view catches rolls back half of its transaction, including the lock on its key, and "atomic"
    cannot detect it.

    Type innodb_rollback_on_timeout=OFF under [mysqld] in my.cnf, and restart the server.
    """


class W067(Finding):
    """The server of the database "%(using)s" has %(setting)s: a COMMIT returns before it is on
    disk. After a crash of the server a claim may be forgotten, and with it that a provider was
    paid.

    Type %(typed)s.
    """


def check_dialect(alias: str, using: Any) -> Iterator[CheckMessage]:
    """Check that a dialect is there for a store's database."""
    vendor = vendor_of(using)
    if vendor is not None and not served(vendor):
        yield E015(alias=alias, using=using, vendor=vendor)


# ------------------------------------------------------------------------------------ with --deploy


def check_server(connection: BaseDatabaseWrapper, cursor: Any) -> Iterator[CheckMessage]:
    """Check that the server keeps what it has committed, and rolls back whole transactions."""
    found = dialect_class(connection)
    # Also for a dialect of a project's own that is derived from one of these.
    for kind, ask in ((PostgreSQL, _postgresql), (InnoDB, _innodb), (SQLite, _sqlite)):
        if found is not None and issubclass(found, kind):
            yield from ask(connection.alias, cursor)


def _postgresql(using: str, cursor: Any) -> Iterator[CheckMessage]:
    # The values of this session, whether set by OPTIONS, the role, the database or the server.
    cursor.execute(
        "SELECT name, setting FROM pg_settings WHERE name IN ('synchronous_commit', 'fsync')"
    )
    values = dict(cursor.fetchall())
    if values.get("synchronous_commit") == "off":
        typed = "synchronous_commit = on in postgresql.conf, or in OPTIONS where it is set"
        yield W067(using=using, setting="synchronous_commit=off", typed=typed)
    if values.get("fsync") == "off":
        typed = "fsync = on in postgresql.conf, and restart the server"
        yield W067(using=using, setting="fsync=off", typed=typed)


def _innodb(using: str, cursor: Any) -> Iterator[CheckMessage]:
    flush = "innodb_flush_log_at_trx_commit"
    cursor.execute(
        f"SHOW VARIABLES WHERE variable_name IN ('innodb_rollback_on_timeout', '{flush}')"
    )
    values = dict(cursor.fetchall())
    if values.get("innodb_rollback_on_timeout") == "ON":
        yield E056(using=using)
    if values.get(flush, "1") != "1":
        typed = f"{flush}=1 under [mysqld] in my.cnf, and restart the server"
        yield W067(using=using, setting=f"{flush}={values[flush]}", typed=typed)


def _sqlite(using: str, cursor: Any) -> Iterator[CheckMessage]:
    level = int(cursor.execute("PRAGMA synchronous").fetchone()[0])
    journal = cursor.execute("PRAGMA journal_mode").fetchone()[0]
    # 2 is FULL; NORMAL flushes a journal, and not a WAL.
    if level == 0 or (level == 1 and journal == "wal"):
        typed = (
            f'DATABASES["{using}"].setdefault("OPTIONS", {{}})["init_command"] = '
            '"PRAGMA synchronous=FULL"'
        )
        setting = f"PRAGMA synchronous={'OFF' if level == 0 else 'NORMAL'}"
        yield W067(using=using, setting=setting, typed=typed)
