"""A request that asked to be guarded and is not: always reported, by a header, a log record and a
signal.

The code that finds out notes the reason on the request; the entry point that handles its response
reports it, once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase

from ..core.policy import SAFE_METHODS, Policy
from ..core.statuses import HeaderStatus
from ..errors import ConfigurationError, KeyAhead, KeyExpired, KeyMalformed
from ..instrumentation.observer import anotify_unguarded, notify_unguarded
from ..instrumentation.outcomes import UNGUARDED, UNKEYED
from .counting import count
from .exchange import exchange_of, note, noted, noted_of, stamp, without_key
from .kinds import EXEMPT, Reason
from .markers import mark_of
from .plan import ANY_POLICY, plan_of
from .responses import answer_to

#: From this status on, a response means that the request was not carried out here, such as a
#: redirect to a login page.
REDIRECTS = 300


METHOD = Reason("method", "its method is not among the policy's methods")
NOBODY = Reason("nobody", "its key has no principal, as far as is known before the view")
NO_KEY = Reason("no-key", "all or part of what its key is selected from is missing")
KEYLESS = Reason("key-missing", "it has no key, which will be required")
NOT_REACHED = Reason("not-reached", "its response came before a guard was reached")
REASONS = (NOBODY, NO_KEY, KEYLESS, METHOD, NOT_REACHED, EXEMPT)


def leave_unguarded(request: HttpRequest, reason: Reason, sentence: str = "") -> None:
    """Note why a request is not guarded, for the entry point that lets it run."""
    exchange_of(request).reason = (
        replace(reason, sentence=sentence.rstrip(".")) if sentence else reason
    )


def is_left_unguarded(request: HttpRequest) -> bool:
    """Is a reason noted that is not yet reported?"""
    found = noted_of(request)
    return found is not None and found.reason is not None


def report_unguarded(request: HttpRequest) -> None:
    """Report a request that is left unguarded, once; do nothing for any other."""
    reason = _taken(request)
    if reason is not None:
        notify_unguarded(request, reason.code, reason.sentence, reason.level, readable_key(request))


async def areport_unguarded(request: HttpRequest) -> None:
    """See report_unguarded()."""
    reason = _taken(request)
    if reason is not None:
        await anotify_unguarded(
            request, reason.code, reason.sentence, reason.level, readable_key(request)
        )


def note_unreached(request: HttpRequest, response: HttpResponseBase) -> None:
    """Note why a response came before a guard was reached: usually the request was refused."""
    if response.status_code < REDIRECTS:
        leave_unguarded(request, NOT_REACHED)
    else:
        note(request, HeaderStatus.REFUSED)


def watched(view: Callable[..., Any], cls: type[Any], policy: Policy) -> Callable[..., Any]:
    """Wrap the view of a class with guarded handlers, to notice when `dispatch()` responds without
    reaching one.

    A refusal is reported. A response that says more was made without the guard: raises
    `ConfigurationError`.
    """
    if iscoroutinefunction(view):

        @functools.wraps(view)
        async def awatching(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            show_handle(request)
            try:
                response = await view(request, *args, **kwargs)
            except Http404 as error:
                return answer_to(request, error, awatching)
            if _is_passed_by(request, response, cls, policy):
                await areport_unguarded(request)
            return stamp(request, response)

        return markcoroutinefunction(awatching)

    @functools.wraps(view)
    def watching(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        show_handle(request)
        try:
            response = view(request, *args, **kwargs)
        except Http404 as error:
            return answer_to(request, error, watching)
        if _is_passed_by(request, response, cls, policy):
            report_unguarded(request)
        return stamp(request, response)

    return watching


def _is_passed_by(request: HttpRequest, response: Any, cls: type[Any], policy: Policy) -> bool:
    """Has a keyed request been answered without the guard of its handler? Then it is noted why."""
    if (
        noted(request) is not None
        or not isinstance(response, HttpResponseBase)
        or request.method in SAFE_METHODS
    ):
        return False
    if not plan_of(policy).carries_key(request.META):
        return False
    name = (request.method or "").lower()
    marked = mark_of(getattr(cls, name, None))
    if marked.exempt:
        leave_unguarded(request, EXEMPT)
        return True
    if response.status_code < REDIRECTS and marked.policy:
        raise ConfigurationError(
            f"{cls.__name__} responded without calling {name}(), where @idempotent() "
            "guards it: nothing has guarded this "
            "request. Let dispatch() call super().dispatch(), or put @idempotent() on a "
            "function that calls "
            f"{cls.__name__}.as_view()(request), below what authenticates the client."
        )
    note_unreached(request, response)
    return True


def show_handle(request: Any) -> None:
    """Let a handler that is not guarded, such as `get()`, ask `if request.idempotency:`, as a
    guarded one may.
    """
    if not hasattr(request, "idempotency"):
        request.idempotency = without_key()


def _taken(request: HttpRequest) -> Reason | None:
    exchange = noted_of(request)
    reason: Reason | None = None if exchange is None else exchange.reason
    if exchange is not None and reason is not None:
        exchange.reason = None
        count(request, UNKEYED if reason.code == KEYLESS.code else UNGUARDED)
        note(request, HeaderStatus.UNGUARDED)
    return reason


def readable_key(request: HttpRequest) -> str | None:
    """Return the key that the client has sent, for the log; `None` if there is none, or a malformed
    one.
    """
    with suppress(KeyMalformed, KeyAhead, KeyExpired):
        exchange = noted_of(request)
        plan = None if exchange is None else exchange.plan
        return (plan_of(ANY_POLICY) if plan is None else plan).read_key(request.META)
    return None
