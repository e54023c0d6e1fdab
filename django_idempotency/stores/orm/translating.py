"""Database errors as errors of a store."""

from __future__ import annotations

import traceback
from contextlib import suppress
from functools import cache
from types import TracebackType

from django.db import Error, connections

from ...errors import LostRace, StoreRefused, StoreUnavailable
from . import database_errors


class Translated:
    """A context whose database errors become `LostRace` or `StoreUnavailable`. It holds no state of a call.

    A connection that broke in autocommit is closed, so that the next statement opens another: outside of requests nobody
    else does that. That of an open transaction is closed by the end of its block.
    """

    def __init__(self, using: str) -> None:
        self._using = using

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, Error):
            return
        connection = connections[self._using]
        if database_errors.connection_lost(error) and not connection.in_atomic_block:
            with suppress(Error):
                connection.close()
        if database_errors.undefined(error):
            refused = StoreRefused()
            refused.advice = f"Type manage.py migrate django_idempotency --database={self._using}"
            raise refused from error
        if not database_errors.lost_race(error):
            raise StoreUnavailable from error
        # Django's database errors keep themselves alive, and in their frames the cursor of a failed BEGIN. On
        # SQLite, a thread that collects it would wait for this connection, which may wait for that thread's lock.
        traceback.clear_frames(trace)
        raise LostRace from error


#: The context for the database of an alias.
translated = cache(Translated)
