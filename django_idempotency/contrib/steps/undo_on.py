"""On which exceptions work gives up, as its policy says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core.checks import CheckMessage

from ...api import Extension, Finding, Resolved
from ...functions.terms import exception_classes
from ..at_rest.encryption import sealing


class E133(Finding):
    """%(view)s has steps (UndoOn) and StatusOnly(), and a step's result is stored until the
    operation has ended.

    Type "ENCRYPTION_KEYS", so that it is stored sealed; or leave UndoOn or StatusOnly out of the
    policy of %(view)s.
    """


class UndoOn(Extension):
    """Undoes the steps of work that raises one of these exceptions: it gives up, and the exception,
    or the response that is made of it, is stored.

    `UndoOn()` takes back one of the settings. Raises `TypeError` for a value that is not a
    class of exceptions.
    """

    decides = "undo_on"
    needs_lease = True

    def __init__(self, *exceptions: Any) -> None:
        says = "Name the classes of exceptions one by one, such as UndoOn(SoldOut, CardDeclined)"
        self.terms = {"undo_on": exception_classes(exceptions, says)}

    def __repr__(self) -> str:
        return f"UndoOn({', '.join(each.__qualname__ for each in self.terms['undo_on'])})"

    def check(self, name: str, terms: Resolved) -> Iterator[CheckMessage]:
        """Find steps whose results would be stored, if only for a while, under a policy that stores
        none.
        """
        if self.terms["undo_on"] and not terms.store_body and sealing() is None:
            yield E133(view=name)
