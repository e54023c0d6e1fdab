"""`mode="observe"`: the view runs as it would without us, and what a guard would have done is reported.

    watch ── the view, unguarded ── conclude: who sent it? is it the same request? was its key known? ── report

Whatever could change the response comes after the view: to find the user (the response would vary by cookie), to parse
the body (the view may choose its upload handlers first), to ask the store. Only a short body is buffered before, since
the view would consume it. What fails is reported, and changes nothing.

The key is recorded after the view, too, and never while a transaction is open: no other request ever waits for it. The
record is one of the store's like any other, but for two things. It lies under a scope of its own
(`scope_names.observed`), which no guard asks for, so it cannot be replayed once the policy enforces. And it has no body.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ...errors import InProgress, LostRace, Problem
from ...http import bodies, counting
from ...http.bodies import is_read
from ...http.exchange import HeaderStatus, hand_out, note, noted_of, stamp
from ...http.identity import Key
from ...http.plan import Plan
from ...http.unguarded import readable_key, report_unguarded
from ...instrumentation.observer import notify_observed
from ...instrumentation.outcomes import OBSERVED
from ...runtime.wings import extended
from .observation import ERROR, Observation, ObservedIdempotency


def watch(
    request: HttpRequest,
    plan: Plan | None,
    *,
    key: Key | None = None,
    user: Any = None,
    source: Any = None,
    strict: bool = True,
    refusal: Exception | None = None,
) -> None:
    """Begin to observe a request whose view runs next. Never raises.

    `refusal`: what a guard would raise. The plan, which may not compile, is not needed then. For the rest
    see `identify()`.
    """
    observation = Observation(
        plan=plan,
        key=key,
        user=user,
        strict=strict,
        refusal=refusal,
        request=weakref.ref(request),
        source=weakref.ref(source or request),
        began=time.monotonic(),
    )
    note(request, HeaderStatus.OBSERVED)
    counting.count(request, OBSERVED)
    exchange = hand_out(request, extended(ObservedIdempotency)(observation))
    exchange.concluding = partial(_report, observation)
    if refusal is None and not is_read(request):
        with suppress(Exception):  # the view meets it, too
            if bodies.fits(request):
                request.body  # noqa: B018 - Django caches the body


def observation_of(request: HttpRequest) -> Observation | None:
    """Return the observation of a request whose view runs."""
    exchange = noted_of(request)
    concluding = None if exchange is None else exchange.concluding
    return concluding.args[0] if isinstance(concluding, partial) else None


def _report(observation: Observation, request: HttpRequest, response: HttpResponseBase) -> None:
    """Report what a guard would have done about a request. Never raises."""
    error: Exception | None = None
    with _session_as_it_was(request):
        try:
            would = observation.judge(request, response)
        except LostRace:
            would = InProgress.code
        except Problem as problem:
            would = problem.code
        except Exception as raised:  # noqa: BLE001 - the project's functions are asked
            would, error = ERROR, raised
    if would is None:
        report_unguarded(request)
        stamp(request, response)
    else:
        notify_observed(request, would, readable_key(request), error)


@contextmanager
def _session_as_it_was(request: HttpRequest) -> Iterator[None]:
    """Hide that we have read the session: SessionMiddleware would let the response vary by cookie."""
    session = vars(request).get("session")
    accessed = getattr(session, "accessed", None)
    try:
        yield
    finally:
        if accessed is not None:
            session.accessed = accessed  # type: ignore[union-attr]
