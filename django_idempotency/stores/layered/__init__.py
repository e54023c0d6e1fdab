"""Records in one store, with a faster one in front of it."""

from .store import LayeredStore

__all__ = ["LayeredStore"]
