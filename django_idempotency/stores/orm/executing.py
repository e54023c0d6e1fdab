"""Runs bound statements on a connection, and reports the database's errors as those of a store."""

from __future__ import annotations

import traceback
from contextlib import suppress
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from django.db import Error, connections

from ...errors import LostRace, StoreRefused, StoreUnavailable
from . import database_errors

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


def translate(error: Error, using: str) -> NoReturn:
    """Raise `LostRace`, `StoreRefused` or `StoreUnavailable` in place of a database's error.

    A connection that broke in autocommit is closed, so that the next statement opens another: outside of requests nobody
    else does that. That of an open transaction is closed by the end of its block.
    """
    connection = connections[using]
    if database_errors.connection_lost(error) and not connection.in_atomic_block:
        with suppress(Error):
            connection.close()
    if database_errors.undefined(error):
        refused = StoreRefused()
        refused.advice = f"Type manage.py migrate django_idempotency --database={using}"
        raise refused from error
    if not database_errors.lost_race(error):
        raise StoreUnavailable from error
    # Django's database errors keep themselves alive, and in their frames the cursor of a failed BEGIN. On
    # SQLite, a thread that collects it would wait for this connection, which may wait for that thread's lock.
    traceback.clear_frames(error.__traceback__)
    raise LostRace from error


class Translated:
    """A context that translates its database errors. It holds no state of a call."""

    def __init__(self, using: str) -> None:
        self._using = using

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Error):
            translate(error, self._using)


#: The context for the database of an alias.
translated = cache(Translated)
