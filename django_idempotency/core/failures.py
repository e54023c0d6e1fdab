"""What a released record knows of the attempt that failed: the error's class, or the status of the
response, and when.

It is written by the settle that releases the record, in the place of a response, and costs no
statement of its own. The next claim forgets it. Nothing here is a client's: no message of an
exception is kept, which may hold personal data.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

from .records import Outcome, Record, Status

#: The headers that hold it. No header has a colon in its name.
FAILED: Final = ":failed"
FAILED_AT: Final = ":failed-at"
#: The most characters that are kept of the name of a class.
LONGEST_NAME = 200


class Failure(NamedTuple):
    """How an attempt failed. `error` is the dotted name of the exception's class; "": it returned a
    5xx response.

    `at` is the time of the host that ran it; `None`: it cannot be read.
    """

    status: int
    error: str
    at: datetime | None

    @property
    def name(self) -> str:
        """The class without its module, for a narrow column; without an exception the response's
        status.
        """
        return self.error.rpartition(".")[2] or str(self.status)


def failed_with(error: BaseException | None, *, at: datetime, status: int = 500) -> Outcome:
    """Return what is stored of an attempt that failed: its exception's class, and the `status` of
    its response.
    """
    return Outcome(
        status=status,
        headers=((FAILED, named(error)), (FAILED_AT, at.isoformat(timespec="seconds"))),
    )


def is_failure(outcome: Outcome | None) -> bool:
    """Is it a note on a failed attempt, and not a response?"""
    return outcome is not None and bool(outcome.headers) and outcome.headers[0][0] == FAILED


def failure_in(outcome: Outcome | None) -> Failure | None:
    """Return the failure that an outcome notes; `None`: it is something else."""
    if outcome is None or not is_failure(outcome):
        return None
    noted = dict(outcome.headers)
    try:
        at = datetime.fromisoformat(noted.get(FAILED_AT, ""))
    except ValueError:
        at = None
    return Failure(outcome.status, noted[FAILED], None if at is None or at.tzinfo is None else at)


def failure_of(record: Record) -> Failure | None:
    """Return how the last attempt of a record failed; `None`: it did not, or it is not known."""
    return failure_in(record.outcome) if record.status is Status.FREE else None


def response_of(record: Record) -> Outcome | None:
    """Return the stored response of a completed record; `None`: there is none, or it cannot be
    read.
    """
    return record.outcome if record.status is Status.COMPLETED else None


def named(error: BaseException | None) -> str:
    """Return the dotted name of the class of an exception, as it is stored; "": there is none."""
    if error is None:
        return ""
    kind = type(error)
    name = (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )
    return name[-LONGEST_NAME:]
