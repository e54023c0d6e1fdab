"""On which exceptions work gives up, as its policy says."""

from __future__ import annotations

from typing import Any

from ...api import Extension
from ...functions.terms import exception_classes


class UndoOn(Extension):
    """Undoes the steps of work that raises one of these exceptions: it gives up, and the exception,
    or the response that is made of it, is stored.

    `UndoOn()` takes back one of the settings. Raises `TypeError` for a value that is not a
    class of exceptions.
    """

    needs_lease = True

    def __init__(self, *exceptions: Any) -> None:
        self.terms = {"undo_on": exception_classes(exceptions, "UndoOn()")}

    def __repr__(self) -> str:
        return f"UndoOn({', '.join(each.__qualname__ for each in self.terms['undo_on'])})"
