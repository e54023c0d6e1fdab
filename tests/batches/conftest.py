"""The store under these batches is that of the functions' tests."""

from tests.functions.conftest import clock, memory

__all__ = ["clock", "memory"]
