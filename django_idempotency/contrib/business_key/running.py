"""Which key the work has that runs here: of the innermost request, call or step."""

from __future__ import annotations

import hashlib
import weakref
from contextvars import ContextVar
from typing import Any
from uuid import UUID

from ...api import CURRENT_STEP, OperationHandle


class Seen(OperationHandle):
    """A handle that is found while its work runs."""

    #: The rows that this attempt has made: their models and keys.
    _rows: set[tuple[type, Any]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._rows = set()
        _SEEN.set((*(each for each in _SEEN.get() if _runs(each())), weakref.ref(self)))


#: The handles of the works that were begun here, the innermost last. Weak: a thread outlives its
#: requests.
_SEEN: ContextVar[tuple[weakref.ref[Seen], ...]] = ContextVar("django_idempotency_seen", default=())


def _runs(handle: Seen | None) -> bool:
    return handle is not None and handle.is_running


def running() -> Seen | None:
    """Return the handle of the innermost work that runs here under a key; `None`: there is none."""
    found = (each() for each in reversed(_SEEN.get()))
    handle = next((each for each in found if _runs(each)), None)
    # While idempotency is off or only observes, no key guards anything.
    return None if handle is None or handle.record_id is None else handle


def business_key() -> UUID | None:
    """Return the key of a row that is made now: the id of the record, or of the step in it.

    `None`: nothing guards here.

    The same for every attempt and takeover, and for the same key after its record has expired or
    was lost, since it is a hash of scope and key, and of the step's name.
    """
    handle = running()
    record = None if handle is None else handle.record_id
    step = CURRENT_STEP.get()
    if record is None or step is None:
        return record
    name = step.name.encode()
    # Each part is preceded by its length, so that their borders cannot move.
    text = b"13:row of a step,16:%b,%d:%b," % (record.bytes, len(name), name)
    return UUID(bytes=hashlib.sha256(text).digest()[:16], version=5)
