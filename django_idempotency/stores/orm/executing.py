"""Runs one bound statement on a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

    from .dialects.transactions import Bound


def fetched(connection: BaseDatabaseWrapper, bound: Bound) -> tuple[Any, ...] | None:
    """Return the first row."""
    with connection.cursor() as cursor:
        cursor.execute(*bound)
        row: tuple[Any, ...] | None = cursor.fetchone()
    return row


def written(connection: BaseDatabaseWrapper, bound: Bound) -> int:
    """Return how many rows it has written."""
    with connection.cursor() as cursor:
        cursor.execute(*bound)
        return int(cursor.rowcount)
