"""Database errors as errors of a store."""

from __future__ import annotations

import traceback
from types import TracebackType

from django.db import Error

from ...errors import LostRace, StoreUnavailable
from . import database_errors


class Translated:
    """A context whose database errors become `LostRace` or `StoreUnavailable`. It holds no state."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, Error):
            return
        if not database_errors.lost_race(error):
            raise StoreUnavailable from error
        # Django's database errors keep themselves alive, and in their frames the cursor of a failed BEGIN. On
        # SQLite, a thread that collects it would wait for this connection, which may wait for that thread's lock.
        traceback.clear_frames(trace)
        raise LostRace from error


translated = Translated()
