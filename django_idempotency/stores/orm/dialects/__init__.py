"""What each database needs so that a claim never waits for an owner. Measured; see the docs' "Statements and trips"."""

from .base import Dialect
from .mysql import InnoDB, MariaDB, MySQL
from .postgresql import PostgreSQL
from .registry import dialect, dialect_class, register_dialect, served
from .sqlite import SQLite

__all__ = [
    "Dialect",
    "InnoDB",
    "MariaDB",
    "MySQL",
    "PostgreSQL",
    "SQLite",
    "dialect",
    "dialect_class",
    "register_dialect",
    "served",
]
