"""These batches use the store of the function tests."""

from tests.functions.conftest import clock, memory

__all__ = ["clock", "memory"]
