"""Fixtures of several wings."""

from __future__ import annotations

from ..checks.conftest import configure

__all__ = ["configure"]
