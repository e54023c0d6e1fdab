"""The admin's fixtures."""

from tests.admin.conftest import boss

__all__ = ["boss"]
