"""What each database needs so that a claim never waits for an owner. Measured; see the docs' "Statements and trips"."""

from .base import Dialect
from .mysql import MariaDB, MySQL
from .postgresql import PostgreSQL
from .registry import dialect, register_dialect, served
from .sqlite import SQLite

__all__ = ["Dialect", "MariaDB", "MySQL", "PostgreSQL", "SQLite", "dialect", "register_dialect", "served"]
