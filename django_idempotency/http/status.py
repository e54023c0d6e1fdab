"""`Idempotency-Status`: one word on the response to a keyed request, so that a client need not guess.

Derived only here: from the outcome of the record, or from a problem, which says it. It is a response header
of one exchange, so it is never stored with the response, and a replay carries its own.
"""

from __future__ import annotations

from enum import Enum
from typing import TypeVar

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ..core.conclusions import SettledState
from ..errors import Problem
from .counting import count_problem
from .exchange import exchange_of, noted_of, spoken_to
from .plan import Spoken
from .references import describe

T = TypeVar("T")

HEADER = "Idempotency-Status"
REPLAYED = "Idempotent-Replayed"
DEGRADED = "Idempotency-Degraded"
#: The id of the request that did the work: on its own response, and on every replay of it.
ORIGINAL = "Original-Request"


class HeaderStatus(Enum):
    """Every value of the header."""

    CREATED = "created"  # it ran here, and a retry will not run it again
    RELEASED = "released"  # it ran here and was refused or dropped: the key is free, even for a different body
    FAILED = "failed"  # it ran here and failed: a retry runs it again, with the same body
    LOST = "lost"  # it ran here, and its record is not settled: ask again to learn what a retry gets
    REPLAYED = "replayed"  # it ran before, and this is the response of that run
    NOT_STORED = "not-stored"  # it ran before, and its response was not stored
    IN_PROGRESS = "in-progress"  # it runs elsewhere
    MISMATCH = "mismatch"  # the key belongs to a different request
    EXPIRED = "expired"  # nothing ran: the key is older than its record would be, so it may have run before
    REFUSED = "refused"  # nothing ran: the response says why
    HELD = "held"  # it may or may not have been carried out before: a person is finding out
    UNKNOWN = "unknown"  # it may or may not have been committed: ask again
    DEGRADED = "degraded"  # it ran without a guard, since the store is not responding
    UNGUARDED = "unguarded"  # it ran without a guard: a retry runs it again
    OBSERVED = "observed"  # it ran without a guard, whose mode is "observe": a retry runs it again
    __hash__ = object.__hash__  # each member is one object, and Enum's own is Python


#: How the record of a request that ran here was left. `None`: we did not settle it.
OF_RECORD: dict[SettledState | None, HeaderStatus] = {
    SettledState.COMPLETED: HeaderStatus.CREATED,
    SettledState.FREE: HeaderStatus.RELEASED,
    SettledState.BOUND: HeaderStatus.FAILED,
    SettledState.LEASED: HeaderStatus.FAILED,
    None: HeaderStatus.LOST,
}

#: What a profile with `result` says of a status: was the request accepted, and is it repeatable? "rejected" otherwise.
ACCEPTED = frozenset(
    {
        *(HeaderStatus.CREATED, HeaderStatus.RELEASED, HeaderStatus.FAILED, HeaderStatus.LOST),
        *(HeaderStatus.REPLAYED, HeaderStatus.NOT_STORED, HeaderStatus.IN_PROGRESS, HeaderStatus.HELD),
        HeaderStatus.UNKNOWN,
    }
)


def headers_of(problem: Problem, spoken: Spoken, code: int) -> dict[str, str]:
    """Return the headers of a problem's response with the status `code`; none for a request without a key."""
    status = of_problem(problem)
    found = {} if status is None else _headers(status, spoken, code)
    return {name: value for name, value in found.items() if value is not None}


def of_problem(problem: Problem) -> HeaderStatus | None:
    """Return the status of a problem; `None` for one of a request without a key."""
    return None if problem.header_status is None else HeaderStatus(problem.header_status)


def note(request: HttpRequest, status: HeaderStatus | None, *, original: str = "") -> None:
    """Note a status on the request, for the entry point that handles its response. `original`: see `ORIGINAL`."""
    exchange = exchange_of(request)
    exchange.status, exchange.original = status, original


def noted(request: HttpRequest) -> HeaderStatus | None:
    """Return the status of a request, or `None` if no entry point has noted one."""
    found = noted_of(request)
    return None if found is None or found.status is None else HeaderStatus(found.status)


def note_problem(request: HttpRequest, problem: Problem) -> None:
    """Note on a request that its response is a problem, and on the problem what it says about the request's operation."""
    describe(problem, request)
    count_problem(request, problem)
    note(request, of_problem(problem), original=problem.headers.get(ORIGINAL, ""))


def stamp(request: HttpRequest, response: T) -> T:
    """Set the headers of what was noted on a request, if anything was."""
    found = noted_of(request)
    if found is not None and found.status is not None and isinstance(response, HttpResponseBase):
        set_headers(HeaderStatus(found.status), response, spoken_to(request), original=found.original)
    return response


def set_headers(status: HeaderStatus, response: HttpResponseBase, spoken: Spoken, *, original: str = "") -> None:
    """Set the headers of a status. A view's own, perhaps copied from another service, are not about this key.

    An observed response keeps them: all of it but the status is as without us.
    """
    if status is HeaderStatus.OBSERVED:
        response[HEADER] = status.value
        return
    for name, value in _headers(status, spoken, response.status_code, original).items():
        if value is None:
            del response[name]
        else:
            response[name] = value


def _headers(status: HeaderStatus, spoken: Spoken, code: int, original: str = "") -> dict[str, str | None]:
    """Return all headers that are ours to set; `None`: this response has none of the name."""
    profile = spoken.profile
    found: dict[str, str | None] = {REPLAYED: None, ORIGINAL: None, HEADER: status.value}
    found[DEGRADED] = "true" if status is HeaderStatus.DEGRADED else None
    if profile.marker:
        found[profile.marker] = "true" if status is HeaderStatus.REPLAYED else None
    if profile.original:
        found[profile.original] = original or None
    if profile.result:
        found[profile.result] = "accepted" if status in ACCEPTED else "rejected"
    if profile.echoes and profile.carrier == "header":
        found[profile.field] = spoken.sent if spoken.sent and code in profile.echoes else None
    return found
