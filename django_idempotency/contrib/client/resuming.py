"""Finishes calls whose process died: sends them again with their keys, as long as their providers
remember these.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from enum import Enum
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db.models import Q, QuerySet

from ...core.lifetime import remembered
from ...errors import CallHeld, LostRace
from ...stores.orm.clock import Clock
from .messages import OutgoingRequest, unpack_request
from .models import OutgoingCall
from .names import Resumption, naming
from .providers import provider
from .rules import UNFINISHED, CallState

#: Calls that are read at once.
PAGE = 100


class Resumed(Enum):
    """What became of a call."""

    FINISHED = "finished"
    HELD = "held"
    LEFT = "left"  # the provider did not respond; the next run goes on
    TAKEN = "taken"  # another process goes on with it


def due(
    *, using: str, older: timedelta, alias: str | None, unanswered: bool
) -> QuerySet[OutgoingCall]:
    """Return the calls that nobody has sent for that long, the oldest first, each with `read_at`.

    `unanswered`: also those whose process gave up, and reported that to its caller.
    """
    states = [state.value for state in (UNFINISHED if unanswered else (CallState.OPEN,))]
    calls = OutgoingCall.objects.using(using).filter(state__in=states, last_sent__lt=Clock(-older))
    if alias is not None:
        calls = calls.filter(provider=alias)
    return calls.order_by("last_sent", "pk").annotate(read_at=Clock())


def expired(*, using: str, older: timedelta, alias: str | None) -> Iterator[Any]:
    """Yield calls, also those whose process gave up, that their providers may have forgotten."""
    for call in paged(
        due(using=using, older=older, alias=alias, unanswered=True).defer("request", "response")
    ):
        with suppress(ImproperlyConfigured):  # reported for the others
            if not remembered(
                call.read_at - call.first_sent, lifetime=provider(call.provider).lifetime
            ):
                yield call


def paged(calls: QuerySet[OutgoingCall]) -> Iterator[Any]:
    """Yield calls page by page; those that change meanwhile leave the pages that follow."""
    rest = calls
    while page := list(rest[:PAGE]):
        yield from page
        last = page[-1]
        rest = calls.filter(
            Q(last_sent__gt=last.last_sent) | Q(last_sent=last.last_sent, pk__gt=last.pk)
        )


def resume(call: OutgoingCall, client: Any, *, using: str) -> Resumed:
    """Send a call again, with what its provider's client adds, and say what became of it.

    Raises `ImproperlyConfigured`, `CannotOpen`, and what the client raises.
    """
    if call.request is None:
        raise ImproperlyConfigured(
            'There was no "CLIENT" when it was made, so its request is not stored.'
        )
    request = unpack_request(call.pk, bytes(call.request))
    resumption = Resumption(
        name=call.name, key=call.key, provider=call.provider, attempts=call.attempts
    )
    try:
        with naming(resumption):
            send(client, request)
    except CallHeld:
        return Resumed.HELD
    except LostRace:
        return Resumed.TAKEN
    if not resumption.taken:
        raise ImproperlyConfigured(
            f'The "CLIENT" of the provider {call.provider!r} is none of ours, and has no '
            "adapter of ours, so the call was sent "
            "past the ledger."
        )
    state = OutgoingCall.objects.using(using).values_list("state", flat=True).get(pk=call.pk)
    return Resumed.LEFT if CallState(state) in UNFINISHED else Resumed.FINISHED


def send(client: Any, request: OutgoingRequest) -> None:
    """Send a request with a client of httpx, or a session of requests."""
    if hasattr(client, "build_request"):
        client.request(
            request.method, request.url, headers=list(request.headers), content=request.body
        )
        return
    headers: dict[str, str] = {}
    # requests takes a dict, and a list of values is the same header (RFC 9110, 5.3)
    for name, value in request.headers:
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    client.request(request.method, request.url, headers=headers, data=request.body)
