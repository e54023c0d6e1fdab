"""Records in a Django database."""

from .store import ORMStore

__all__ = ["ORMStore"]
