"""What each database needs so that a claim never waits for an owner, and which connection gets
what.

Measured; see the docs' "Statements and trips".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....errors import ConfigurationError
from .base import Dialect
from .mysql import InnoDB, MariaDB, MySQL
from .postgresql import PostgreSQL
from .sqlite import SQLite

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

__all__ = [
    "Dialect",
    "InnoDB",
    "MariaDB",
    "MySQL",
    "PostgreSQL",
    "SQLite",
    "dialect",
    "register_dialect",
    "served",
]

#: The first that suits a connection is used.
_DIALECTS: list[type[Dialect]] = [PostgreSQL, MariaDB, MySQL, SQLite]


def register_dialect(new: type[Dialect]) -> None:
    """Let `ORMStore` use connections of `new.vendor` that it suits.

    It is asked before those registered earlier.

    Call it in `AppConfig.ready()`. A store that has already used its connection keeps its dialect.
    """
    if new not in _DIALECTS:
        _DIALECTS.insert(0, new)


def dialect_class(connection: BaseDatabaseWrapper) -> type[Dialect] | None:
    """Return the class of a connection's dialect, if there is one. May connect."""
    suitable = (
        each for each in _DIALECTS if each.vendor == connection.vendor and each.suits(connection)
    )
    return next(suitable, None)


def dialect(connection: BaseDatabaseWrapper) -> Dialect:
    """Return the dialect of a connection, which may connect.

    Raises `ConfigurationError` if there is none.
    """
    found = dialect_class(connection)
    if found is not None:
        return found(connection)
    raise ConfigurationError(
        f"ORMStore has no dialect for the database {connection.alias!r}, whose kind is "
        f"{connection.vendor!r}. "
        "Use a store in another database, or register a dialect for it with register_dialect()."
    )


def served(vendor: str | None) -> bool:
    """Is there a dialect for databases of this kind? Connects to none."""
    return any(each.vendor == vendor for each in _DIALECTS)
