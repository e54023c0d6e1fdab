"""These calls use the store of the function tests."""

from tests.functions.conftest import clock, guard, memory

__all__ = ["clock", "guard", "memory"]
