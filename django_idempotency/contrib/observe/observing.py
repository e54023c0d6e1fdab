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
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ...core.concurrency.threads import in_thread
from ...core.policy import Resolved
from ...errors import InProgress, LostRace, Problem
from ...extensions import extended
from ...http import bodies, counting
from ...http.identity import Key
from ...http.introspection import is_read
from ...http.status import HeaderStatus, note, noted, stamp
from ...http.unguarded import readable_key, report_unguarded
from ...instrumentation.observer import notify_observed
from ...instrumentation.outcomes import OBSERVED
from .observation import ERROR, Observation, ObservedIdempotency

#: On a request: its observation, until that is concluded.
_OBSERVATION = "_idempotency_observation"


def watch(
    request: HttpRequest,
    policy: Resolved | None,
    *,
    key: Key | None = None,
    user: Any = None,
    source: Any = None,
    strict: bool = True,
    refusal: Exception | None = None,
) -> None:
    """Begin to observe a request whose view runs next. Never raises.

    `refusal`: what a guard would raise. The policy, which may contradict the settings, is not needed then. For the rest
    see `identify()`.
    """
    observation = Observation(
        terms=policy,
        key=key,
        user=user,
        strict=strict,
        refusal=refusal,
        request=weakref.ref(request),
        source=weakref.ref(source or request),
        began=time.monotonic(),
    )
    setattr(request, _OBSERVATION, observation)
    note(request, HeaderStatus.OBSERVED)
    counting.count(request, OBSERVED)
    request.idempotency = extended(ObservedIdempotency)(observation)  # type: ignore[attr-defined]
    if refusal is None and not is_read(request):
        with suppress(Exception):  # the view meets it, too
            if bodies.fits(request):
                request.body  # noqa: B018 - Django caches the body


def observation_of(request: HttpRequest) -> Observation | None:
    """Return the observation of a request whose view runs."""
    return getattr(request, _OBSERVATION, None)


def conclude(request: HttpRequest, response: Any) -> None:
    """Report what a guard would have done about a request, if it is observed. Outside the view's transaction.

    Never raises.
    """
    if (observation := _taken(request)) is not None and isinstance(response, HttpResponseBase):
        _report(request, observation, response)


async def aconclude(request: HttpRequest, response: Any) -> None:
    """See conclude()."""
    if (observation := _taken(request)) is not None and isinstance(response, HttpResponseBase):
        await in_thread(_report, request, observation, response)


def _taken(request: HttpRequest) -> Observation | None:
    observation: Observation | None = vars(request).pop(_OBSERVATION, None)
    # Another entry point may have guarded it after all, nearer to the view.
    return observation if noted(request) is HeaderStatus.OBSERVED else None


def _report(request: HttpRequest, observation: Observation, response: HttpResponseBase) -> None:
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
