"""What is noted of one request, from its first entry point to its response. It is kept with `request.idempotency`."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from enum import Enum
from typing import Any
from uuid import UUID

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ..core.policy import Policy
from ..core.profiles import Profile
from ..engine.operation import Operation
from ..instrumentation.meters import Source
from .handle import new_without_key, without_key
from .plan import Plan, Spoken, plan_of


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
        "status",
        "transactions",
    )

    def __init__(self, request: HttpRequest, call: Any = None) -> None:
        #: The request: what is noted of it is not true of a copy of it.
        self.of = weakref.ref(request)
        #: The plan that the request was looked at with last, and the profile that its response speaks.
        self.plan: Plan | None = None
        self.spoken: Spoken | None = None
        #: The status for its header, once known, and the id of the request that did the work; "": there is none.
        self.status: Enum | None = None
        self.original = ""
        #: Why it is not guarded, until that is reported.
        self.reason: Any = None
        #: The record that it is about, and the operation that has claimed it.
        self.record: UUID | None = None
        self.operation: Operation | None = None
        #: The call that guards it, while its view runs.
        self.call = call
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
    return exchange_of(request) if found is not None and found.of() is not request else found


def exchange_of(request: HttpRequest) -> Exchange:
    """Return what is noted of a request, to note more."""
    handle: Any = getattr(request, "idempotency", None)
    found: Exchange | None = getattr(handle, "_exchange", None)
    if found is not None and found.of() is request:
        return found
    exchange = Exchange(request, None if found is None else found.call)  # a copy is inside the same call
    if found is None and handle is not None and handle is not without_key():
        handle._exchange = exchange  # noqa: SLF001 - ours
    else:
        request.idempotency = new_without_key(exchange)  # type: ignore[attr-defined]
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
