"""A whole view under guard, for the doors that can wrap one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import sync_to_async
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ..core.policy import Policy
from ..core.records import Guarantee
from ..errors import ConfigurationError, Problem
from ..finishing import to_the_end
from ..transactions import Opened, atomic_requests
from .exchange import Exchange, key_of, terms_of
from .keys import user_of
from .problems import problem_response
from .responses import render

ProblemAnswer = Callable[[Problem], HttpResponseBase]


def run(
    request: HttpRequest,
    policy: Policy,
    view: Callable[[], HttpResponseBase],
    *,
    source: Any,
    declared: set[str],
    answer_problem: ProblemAnswer = problem_response,
) -> HttpResponseBase:
    """Run a sync view under guard if the request carries a key. Claim, work and COMMIT happen in this one call."""
    try:
        exchange = None
        if (key := key_of(request, policy)) is not None:
            user = getattr(source, "user", None)
            exchange = Exchange.of(request, terms_of(policy), key=key, user=user, source=source)
        answer = None if exchange is None else exchange.open()
    except Problem as problem:
        return answer_problem(problem)
    if answer is not None:
        return answer
    if exchange is None:
        with atomic_requests(declared):
            return view()
    requests, response = Opened(), None
    try:
        with atomic_requests(declared, but=exchange.atomic_alias) as requests:
            response = view()
        render(response)
    except BaseException as error:  # noqa: BLE001 - fail() raises it again
        exchange.fail(error, committed=lambda: response if requests.committed else None)
    try:
        return exchange.settle(response)
    except Problem as problem:
        return answer_problem(problem)


async def arun(
    request: HttpRequest, policy: Policy, view: Callable[[], Awaitable[HttpResponseBase]]
) -> HttpResponseBase:
    """Run an async view under guard if the request carries a key. A client that goes away never frees a key early."""
    try:
        exchange = None
        if (key := key_of(request, policy)) is not None:
            user = await user_of(request)
            terms = terms_of(policy)
            if terms.guarantee == Guarantee.ATOMIC:
                raise ConfigurationError('An async view cannot be "atomic". Type guarantee="lease".')
            exchange = await sync_to_async(Exchange.of)(request, terms, key=key, user=user, source=request)
        answer = None if exchange is None else await exchange.aopen()
    except Problem as problem:
        return problem_response(problem)
    if answer is not None:
        return answer
    if exchange is None:
        return await view()
    try:
        response = await view()
        if not getattr(response, "is_rendered", True):
            await sync_to_async(render)(response)
    except GeneratorExit as closed:  # nothing can be awaited any more, and for a cut nothing is written
        exchange.fail(closed)
    except BaseException as error:  # noqa: BLE001 - afail() raises it again
        await to_the_end(exchange.afail(error))
    try:
        return await to_the_end(exchange.asettle(response))
    except Problem as problem:
        return problem_response(problem)
