"""What is noted of one request, from its first entry point to its response, and the headers that tell its client.

It is kept with `request.idempotency`. `Idempotency-Status` is one word on the response to a keyed request, so that a client
need not guess. It is derived only here: from the outcome of the record, or from a problem, which says it. It belongs to one
exchange, so it is never stored with the response, and a replay carries its own.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from enum import Enum
from typing import Any, TypeVar
from uuid import UUID

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ..core.conclusions import SettledState
from ..core.policy import Policy
from ..core.profiles import Profile
from ..engine.operation import Operation
from ..errors import Problem
from ..instrumentation.meters import Source
from ..runtime.wings import extended
from .handle import WithoutKey, without_key
from .plan import Plan, Spoken, plan_of

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


class Exchange:
    """A request and its response, as far as entry points have noted something. Most requests have none: they have no key."""

    __slots__ = (
        "arrived",
        "call",
        "concluding",
        "counted",
        "entry",
        "of",
        "operation",
        "original",
        "plan",
        "reason",
        "record",
        "source",
        "spoken",
        "stamped",
        "status",
        "transactions",
    )

    def __init__(self, request: HttpRequest) -> None:
        #: The request: what is noted of it is not true of a copy of it.
        self.of = weakref.ref(request)
        #: The plan that the request was looked at with last, and the profile that its response speaks.
        self.plan: Plan | None = None
        self.spoken: Spoken | None = None
        #: The status for its header, once known, and the id of the request that did the work; "": there is none.
        self.status: HeaderStatus | None = None
        self.original = ""
        #: The response that has the headers of that already. Weak, since Django lets a response refer to its request.
        self.stamped: weakref.ref[HttpResponseBase] | None = None
        #: Why it is not guarded, until that is reported.
        self.reason: Any = None
        #: The record that it is about, and the operation that has claimed it.
        self.record: UUID | None = None
        self.operation: Operation | None = None
        #: The call that guards it, while its view runs.
        self.call: Any = None
        #: What of an entry point must be found again deeper inside: its view, and its transactions.
        self.entry: Any = None
        self.transactions: Any = None
        #: The labels of its figures, once an entry point has noted them, and whether it is counted.
        self.source: Source | None = None
        self.counted = False
        #: Is called with each entry point that it comes to, and its policy.
        self.arrived: Callable[[str, Policy], None] | None = None
        #: Is called with the response of a view that ran unguarded.
        self.concluding: Callable[[HttpRequest, HttpResponseBase], None] | None = None


def noted_of(request: HttpRequest) -> Exchange | None:
    """Return what is noted of a request; `None`: nothing."""
    found: Exchange | None = getattr(getattr(request, "idempotency", None), "_exchange", None)
    if found is None or found.of() is request or found.call is not None:
        return found
    return exchange_of(request)


def exchange_of(request: HttpRequest) -> Exchange:
    """Return what is noted of a request, to note more.

    A copy of a request has the handle of the other one. Inside the call that guards that, both are one exchange.
    """
    handle: Any = getattr(request, "idempotency", None)
    found: Exchange | None = getattr(handle, "_exchange", None)
    if found is not None and (found.of() is request or found.call is not None):
        return found
    exchange = Exchange(request)
    if found is None and handle is not None and handle is not without_key():
        handle._exchange = exchange  # noqa: SLF001 - ours
    else:
        request.idempotency = extended(WithoutKey)(exchange)  # type: ignore[attr-defined]
    return exchange


def call_on(request: HttpRequest) -> Any:
    """Return the `Call` that guards a request now, or `None`."""
    found = noted_of(request)
    return None if found is None else found.call


def speak(request: HttpRequest, profile: Profile, sent: object = None) -> None:
    """Note a profile on a request, and the value of its header once that has been read without a complaint."""
    repeated = "" if sent is None or profile.carrier != "header" else str(sent).strip(" \t")
    exchange_of(request).spoken = Spoken(profile, repeated)


def spoken_to(request: HttpRequest) -> Spoken:
    """Return the profile in which a request is answered; if none is noted on it, that of the settings."""
    found = noted_of(request)
    return plan_of().spoken if found is None or found.spoken is None else found.spoken


def hand_out(request: HttpRequest, handle: Any) -> Exchange:
    """Set `request.idempotency`. What is noted of the request stays with it, and is returned."""
    exchange = exchange_of(request)
    handle._exchange = exchange  # noqa: SLF001 - ours
    request.idempotency = handle  # type: ignore[attr-defined]
    return exchange


# ------------------------------------------------------------------------------------------------------- the headers


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
    return None if found is None else found.status


def stamp(request: HttpRequest, response: T) -> T:
    """Set the headers of what was noted on a request, if anything was."""
    found = noted_of(request)
    if found is not None and found.status is not None and isinstance(response, HttpResponseBase):
        set_headers(found.status, response, spoken_to(request), original=found.original)
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
