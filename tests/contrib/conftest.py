"""Fixtures of several optional apps."""

from __future__ import annotations

from ..checks.conftest import configure
from ..entry_points.conftest import connect, entry_point

__all__ = ["configure", "connect", "entry_point"]
