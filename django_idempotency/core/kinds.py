"""The outcome of a function's call in its record: status and content type encode how the call ended."""

from __future__ import annotations

from enum import Enum

from .records import MISSING, Missing, Outcome

#: Does the same as `Outcome()`, in half the time (measured: 0.1 µs per call).
_tuple = tuple.__new__

#: The method of such a record. Its path is the function's name.
METHOD = "CALL"
Headers = tuple[tuple[str, str], ...]


class Kind(Enum):
    """How a call ended. The value is the status that encodes it."""

    RESULT = 200
    HELD = 202  # does not run until a person releases it
    ERROR = 400  # an exception that is raised again

    def __init__(self, status: int) -> None:
        self.status = status
        #: Those of the outcome.
        self.headers: Headers = (("Content-Type", f"application/vnd.django-idempotency.{self.name.lower()}+json"),)

    def outcome(self, body: bytes | Missing = MISSING) -> Outcome:
        """Return the outcome of a call that ended this way; without a body when that could not be stored."""
        return _tuple(Outcome, (self.status, self.headers, body))


_KINDS = {kind.headers: kind for kind in Kind}


def kind_of(outcome: Outcome | None) -> Kind | None:
    """Return how a call ended; `None` if the outcome is not a function's."""
    return None if outcome is None else _KINDS.get(outcome.headers)
