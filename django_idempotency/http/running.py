"""Runs a whole view under guard, for entry points that wrap one."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ..contrib.observe.observing import aconclude, conclude
from ..core.concurrency.cancellation import run_to_completion
from ..core.concurrency.threads import in_thread
from ..core.contradictions import async_contradiction
from ..core.policy import Policy
from ..core.records import Guarantee
from ..errors import ConfigurationError, Problem
from .admission import key_to_guard
from .atomic_requests import OpenedTransactions, atomic_requests
from .exchange import Exchange
from .keys import user_of
from .problems import aproblem_response, problem_response
from .responses import render
from .status import stamp
from .takeovers import Finish
from .terms import resolve_policy
from .unguarded import areport_unguarded, report_unguarded

ProblemResponder = Callable[[Problem, HttpRequest], HttpResponseBase]


def run_guarded(
    request: HttpRequest,
    policy: Policy,
    view: Callable[[], HttpResponseBase],
    *,
    source: Any,
    non_atomic: set[str],
    respond_to_problem: ProblemResponder = problem_response,
    finish: Finish | None = None,
) -> HttpResponseBase:
    """Run a sync view under guard if the request carries a key. Claim, work and COMMIT happen in this one call."""
    try:
        exchange = None
        if (key := key_to_guard(request, policy)) is not None:
            user = getattr(source, "user", None)
            exchange = Exchange.of(
                request, resolve_policy(policy), key=key, user=user, source=source, non_atomic=non_atomic, finish=finish
            )
        replay = None if exchange is None else exchange.open()
    except Problem as problem:
        return respond_to_problem(problem, request)
    if replay is not None:
        return replay
    if exchange is None:
        report_unguarded(request)
        with atomic_requests(non_atomic):
            response = view()
        conclude(request, response)
        return stamp(request, response)
    requests, returned = OpenedTransactions(), None
    try:
        with atomic_requests(non_atomic, but=exchange.atomic_alias) as requests:
            returned = checked_response(view())
        render(returned)
    except BaseException as error:  # noqa: BLE001 - fail() raises it again
        return respond_to_problem(
            exchange.fail(error, committed=lambda: returned if requests.committed else None), request
        )
    try:
        return exchange.settle(returned)
    except Problem as problem:
        return respond_to_problem(problem, request)


def checked_response(returned: Any) -> HttpResponseBase:
    """Return a guarded view's response. Raises `ConfigurationError` when it is not a response."""
    if isinstance(returned, HttpResponseBase):
        return returned
    if inspect.iscoroutine(returned):
        returned.close()
        raise ConfigurationError(
            "A guarded view returned a coroutine, which would not be awaited under the guard: nothing has run. Make it "
            'an async function, and type @idempotent(guarantee="lease").'
        )
    raise ConfigurationError(
        f"A guarded view returned a value of type {type(returned).__name__}, not a response, so there is nothing to "
        "store. Put @idempotent() on the function that returns the response."
    )


async def arun_guarded(
    request: HttpRequest, policy: Policy, view: Callable[[], Awaitable[HttpResponseBase]]
) -> HttpResponseBase:
    """Run an async view under guard if the request carries a key. A client that disconnects never frees a key early."""
    try:
        exchange = None
        if (key := key_to_guard(request, policy)) is not None:
            user = await user_of(request, policy)
            terms = resolve_policy(policy)
            exchange = await sync_to_async(Exchange.of)(request, terms, key=key, user=user, source=request)
            if exchange is not None and terms.guarantee == Guarantee.ATOMIC:
                raise ConfigurationError(async_contradiction("This view", fix='Type guarantee="lease".'))
        replay = None if exchange is None else await exchange.aopen()
    except Problem as problem:
        return await aproblem_response(problem, request)
    if replay is not None:
        return replay
    if exchange is None:
        await areport_unguarded(request)
        response = await view()
        await aconclude(request, response)
        return stamp(request, response)
    try:
        response = checked_response(await view())
        if not getattr(response, "is_rendered", True):
            await in_thread(render, response, close=connections.close_all)
    except GeneratorExit as closed:  # nothing can be awaited any more, and an aborted run writes nothing
        exchange.fail(closed)
        raise
    except BaseException as error:  # noqa: BLE001 - afail() raises it again
        return await aproblem_response(await run_to_completion(exchange.afail(error)), request)
    try:
        return await run_to_completion(exchange.asettle(response))
    except Problem as problem:
        return await aproblem_response(problem, request)
