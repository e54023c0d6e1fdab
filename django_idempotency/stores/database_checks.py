"""Checks of the database that a store is in. Nothing here connects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core.checks import CheckMessage
from django.db import connections

from .check_messages import closest, finding, shown

SUPPORTED = ("postgresql", "mysql", "sqlite")


def check_database(alias: str, using: Any) -> Iterator[CheckMessage]:
    """Check that a store's database is known and supported."""
    if not isinstance(using, str) or using not in connections.settings:
        yield finding("E014", alias=alias, using=shown(using), close=closest(str(using), connections.settings))
    elif (vendor := vendor_of(using)) is not None and vendor not in SUPPORTED:
        yield finding("E015", alias=alias, using=using, vendor=vendor)


def vendor_of(using: str) -> str | None:
    """Return the vendor of a database without connecting; `None` when its driver is missing, which Django reports."""
    try:
        return connections[using].vendor
    except Exception:  # noqa: BLE001 - a third-party backend
        return None
