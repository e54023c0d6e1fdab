"""A view under guard: find its call, and run it in the bracket (`engine.bracket`).

An entry point hands over the work, and says what only it knows. Where a framework calls a handler
deep inside of its own work, hooks there make the calls of the bracket (`rest_framework.guarding`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from django.db import connections, transaction
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ..core.concurrency import in_thread
from ..core.policy import Policy, async_contradiction
from ..core.statuses import HeaderStatus
from ..engine.bracket import aguarded, guarded
from ..errors import ConfigurationError, Problem
from ..stores.interrupted import in_transaction
from ..stores.lending import in_database_thread
from .admission import aadmit, admit
from .call import Call, Respond
from .exchange import noted, noted_of, stamp
from .problems import problem_response
from .unguarded import areport_unguarded, report_unguarded

Work = Callable[[], HttpResponseBase]
AsyncWork = Callable[[], Awaitable[HttpResponseBase]]


def run(
    request: HttpRequest,
    policy: Policy,
    work: Work,
    *,
    source: Any,
    by: str = "decorator",
    respond: Respond = problem_response,
    **facts: Any,
) -> HttpResponseBase:
    """Run a sync view under guard if the request carries a key.

    Claim, work and COMMIT happen in this one call.

    `source` is the request that the view sees (DRF's, or Django's), which parses the body as the
    view would. `by` is the kind of the entry point, for the metrics. `facts`: see `Call`.
    """
    user = getattr(source, "user", None)
    try:
        call = admit(request, policy, user=user, source=source, by=by, respond=respond, **facts)
    except Problem as problem:
        return respond(problem, request)
    if call is None:
        return run_unguarded(request, work)
    return guarded(call, work)


async def arun(
    request: HttpRequest,
    policy: Policy,
    work: AsyncWork,
    *,
    by: str = "decorator",
    respond: Respond = problem_response,
    require: Callable[[Call], None] | None = None,
    **facts: Any,
) -> HttpResponseBase:
    """See run(). A client that disconnects never frees a key early."""
    try:
        call = await aadmit(request, policy, by=by, respond=respond, **facts)
    except Problem as problem:
        return await in_database_thread(respond, problem, request)
    if call is None:
        return await arun_unguarded(request, work)
    (require or require_lease)(call)
    return await aguarded(call, work)


def require_lease(
    call: Call, name: str = "This view", *, fix: str = 'Type guarantee="lease".'
) -> None:
    """Raise `ConfigurationError` for async work under `atomic`: the settings have changed since it
    was declared.
    """
    if not call.plan.leases:
        raise ConfigurationError(async_contradiction(name, fix=fix))


# ---------------------------------------------------------------------------------- without a guard


def run_unguarded(request: HttpRequest, work: Work) -> HttpResponseBase:
    """Run a view that no guard is around, and report it if it asked for one."""
    report_unguarded(request)
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
    """Let what only observes a request see the response of its view, once the transaction of
    ATOMIC_REQUESTS is committed. Never raises.
    """
    observe = _observing(request, response)
    if observe is None:
        return
    for connection in connections.all(initialized_only=True):
        if in_transaction(connection):
            seen = partial(observe, request, response)
            transaction.on_commit(seen, using=connection.alias, robust=True)
            return
    observe(request, response)


async def aconclude(request: HttpRequest, response: Any) -> None:
    """See conclude()."""
    observe = _observing(request, response)
    if observe is not None:
        await in_thread(observe, request, response)


def _observing(
    request: HttpRequest, response: Any
) -> Callable[[HttpRequest, HttpResponseBase], None] | None:
    exchange = noted_of(request)
    if exchange is None or exchange.concluding is None:
        return None
    observe = exchange.concluding
    exchange.concluding = None
    # Another entry point may have guarded it after all, nearer to the view.
    observed = noted(request) is HeaderStatus.OBSERVED and isinstance(response, HttpResponseBase)
    return observe if observed else None
