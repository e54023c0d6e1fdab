"""Checks of the database that a store is in. Nothing here connects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core.checks import CheckMessage
from django.db import connections

from .check_messages import Finding, closest, shown


class E014(Finding):
    """IDEMPOTENCY["STORES"]["%(alias)s"] uses the database %(using)s, which DATABASES does not
    have.

    Type "OPTIONS": {"using": "%(close)s"}, or add the database.
    """


def check_database(alias: str, using: Any) -> Iterator[CheckMessage]:
    """Check that a store's database is known."""
    if not isinstance(using, str) or using not in connections.settings:
        yield E014(alias=alias, using=shown(using), close=closest(str(using), connections.settings))


def vendor_of(using: Any) -> str | None:
    """Return a database's vendor without connecting; `None` if there is no such alias, or its
    driver is missing.
    """
    try:
        return connections[using].vendor
    except Exception:  # noqa: BLE001 - a third-party backend
        return None
