"""The way of a request: `run()`, and `arun()` for async views, the same for all entry points.

An entry point hands over the work, and says what only it knows. Where a framework calls a handler
deep inside of its own work, as REST framework does, it opens the call there, and `finish()` is
around all of it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from collections.abc import Set as AbstractSet
from typing import Any

from django.db import connections
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ..core.concurrency import in_thread, run_to_completion
from ..core.policy import Policy, async_contradiction
from ..core.statuses import HeaderStatus
from ..errors import ConfigurationError, Problem
from .admission import aadmit, admit
from .atomic_requests import atomic_requests
from .call import Call
from .exchange import noted, noted_of, stamp
from .problems import aproblem_response, problem_response
from .responses import render
from .unguarded import areport_unguarded, report_unguarded

Work = Callable[[], HttpResponseBase]
AsyncWork = Callable[[], Awaitable[HttpResponseBase]]
Respond = Callable[[Problem, HttpRequest], HttpResponseBase]


def run(
    request: HttpRequest,
    policy: Policy,
    work: Work,
    *,
    source: Any,
    non_atomic: AbstractSet[str],
    by: str = "decorator",
    respond: Respond = problem_response,
    **facts: Any,
) -> HttpResponseBase:
    """Run a sync view under guard if the request carries a key.

    Claim, work and COMMIT happen in this one call.

    `source` is the request that the view sees (DRF's, or Django's), which parses the body as the
    view would. `non_atomic` are the databases that the view excludes from ATOMIC_REQUESTS. `facts`:
    see `Call`.
    """
    facts.update(
        user=getattr(source, "user", None), source=source, by=by, strict=True, non_atomic=non_atomic
    )
    try:
        call = admit(request, policy, **facts)
    except Problem as problem:
        return respond(problem, request)
    if call is None:
        return run_unguarded(request, work, non_atomic)
    try:
        return run_call(call, request, work, non_atomic=non_atomic, respond=respond)
    except BaseException:
        call.close()
        raise


def run_call(
    call: Call,
    request: HttpRequest,
    work: Work,
    *,
    non_atomic: AbstractSet[str],
    respond: Respond = problem_response,
) -> HttpResponseBase:
    """Run a view under its call.

    Who calls this closes the call where anything leaves it, such as a time limit.
    """
    returned = None
    try:
        if (replay := call.open()) is not None:
            return replay
    except Problem as problem:
        return respond(problem, request)
    try:
        with atomic_requests(non_atomic, but=call.atomic_alias) as call.within:
            if call.within.blocks:
                call.within.guard()
            returned = checked_response(work())
        render(returned)
    except BaseException as error:  # noqa: BLE001 - fail() raises it again
        return respond(
            call.fail(error, committed=lambda: returned if call.within.committed else None), request
        )
    try:
        return call.settle(returned)
    except Problem as problem:
        return respond(problem, request)


async def arun(
    request: HttpRequest, policy: Policy, work: AsyncWork, *, by: str = "decorator", **facts: Any
) -> HttpResponseBase:
    """See run(). A client that disconnects never frees a key early."""
    try:
        call = await aadmit(request, policy, by=by, **facts)
    except Problem as problem:
        return await aproblem_response(problem, request)
    if call is None:
        return await arun_unguarded(request, work)
    try:
        return await arun_call(call, request, work)
    except BaseException:
        call.close()
        raise


async def arun_call(call: Call, request: HttpRequest, work: AsyncWork) -> HttpResponseBase:
    """See run_call()."""
    try:
        require_lease(call)
        if (replay := await call.aopen()) is not None:
            return replay
    except Problem as problem:
        return await aproblem_response(problem, request)

    async def checked() -> HttpResponseBase:
        return checked_response(await work())

    return await aended(lambda: call, checked, lambda problem: aproblem_response(problem, request))


async def aended(
    opened: Callable[[], Call | None],
    work: AsyncWork,
    respond: Callable[[Problem], Awaitable[HttpResponseBase]],
) -> HttpResponseBase:
    """Await async work, and end the call that has been opened by then: its response is rendered and
    settled.

    Without a call, the response of the work is returned, and its exception raised.
    """
    try:
        response = await work()
        if opened() is not None and not getattr(response, "is_rendered", True):
            await in_thread(render, response, close=connections.close_all)
    except (
        GeneratorExit
    ) as closed:  # nothing can be awaited any more, and an aborted run writes nothing
        if (call := opened()) is not None:
            call.fail(closed)
        raise
    except BaseException as error:
        if (call := opened()) is None:
            raise
        return await respond(await run_to_completion(call.afail(error)))
    if (call := opened()) is None:
        return response
    try:
        return await run_to_completion(call.asettle(response))
    except Problem as problem:
        return await respond(problem)


def require_lease(
    call: Call, name: str = "This view", *, fix: str = 'Type guarantee="lease".'
) -> None:
    """Raise `ConfigurationError` for async work under `atomic`: the settings have changed since it
    was declared.
    """
    if not call.plan.leases:
        raise ConfigurationError(async_contradiction(name, fix=fix))


# ---------------------------------------------------------------------------------- without a guard


def run_unguarded(
    request: HttpRequest, work: Work, non_atomic: AbstractSet[str]
) -> HttpResponseBase:
    """Run a view that no guard is around, as Django would, and report it if it asked for one."""
    report_unguarded(request)
    with atomic_requests(non_atomic):
        response = work()
    conclude(request, response)
    return stamp(request, response)


async def arun_unguarded(request: HttpRequest, work: AsyncWork) -> HttpResponseBase:
    """See run_unguarded()."""
    await areport_unguarded(request)
    response = await work()
    await aconclude(request, response)
    return stamp(request, response)


def conclude(request: HttpRequest, response: Any) -> None:
    """Let what only observes a request see the response of its view, outside the view's
    transaction. Never raises.
    """
    if (observe := _observing(request, response)) is not None:
        observe(request, response)


async def aconclude(request: HttpRequest, response: Any) -> None:
    """See conclude()."""
    if (observe := _observing(request, response)) is not None:
        await in_thread(observe, request, response)


def _observing(
    request: HttpRequest, response: Any
) -> Callable[[HttpRequest, HttpResponseBase], None] | None:
    exchange = noted_of(request)
    if exchange is None or exchange.concluding is None:
        return None
    observe, exchange.concluding = exchange.concluding, None
    # Another entry point may have guarded it after all, nearer to the view.
    observed = noted(request) is HeaderStatus.OBSERVED and isinstance(response, HttpResponseBase)
    return observe if observed else None


def checked_response(returned: Any) -> HttpResponseBase:
    """Return a guarded view's response. Raises `ConfigurationError` when it is not a response."""
    if isinstance(returned, HttpResponseBase):
        return returned
    if inspect.iscoroutine(returned):
        returned.close()
        raise ConfigurationError(
            "A guarded view returned a coroutine, which would not be awaited under the "
            "guard: nothing has run. Make it "
            'an async function, and type @idempotent(guarantee="lease").'
        )
    raise ConfigurationError(
        f"A guarded view returned a value of type {type(returned).__name__}, not a "
        "response, so there is nothing to "
        "store. Put @idempotent() on the function that returns the response."
    )
