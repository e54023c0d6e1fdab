"""The admin's users."""

from __future__ import annotations

from ...admin.conftest import boss

__all__ = ["boss"]
