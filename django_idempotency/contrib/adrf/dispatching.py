"""Async REST framework views, as in adrf: the mixin and the decorator below `@api_view`, under a
lease.

The async variant of `guarding` and `functions`. The guard opens when the handler is called, after
authentication, permissions and throttles, and closes around the rendered response. No transaction
is involved.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ...core.policy import SAFE_METHODS, Policy
from ...core.statuses import HeaderStatus
from ...errors import Problem
from ...http.admission import aadmit
from ...http.atomic_requests import non_atomic_aliases_of
from ...http.bodies import keep
from ...http.call import Call
from ...http.exchange import note, stamp, without_key
from ...http.markers import mark_of
from ...http.problems import aproblem_response, note_problem
from ...http.responses import render
from ...http.run import aconclude, aended, require_lease
from ...http.unguarded import EXEMPT, areport_unguarded, leave_unguarded
from ...rest_framework import problems
from ...rest_framework.guarding import ViewTerms, finished, handled, headed, judge
from ...rest_framework.inside import DispatchFinished
from ...rest_framework.problems import IdempotencyException
from ...stores.lending import in_database_thread

Run = Callable[[], Awaitable[HttpResponseBase]]


async def adispatch(
    view: Any, request: HttpRequest, terms: ViewTerms, run: Run
) -> HttpResponseBase:
    """Guard the handler of an unsafe method, if the request carries a key.

    `run` is the view's own dispatch.
    """
    name = (request.method or "").lower()
    handler = getattr(view, name, None) if name in view.http_method_names else None
    if handler is None or request.method in SAFE_METHODS or mark_of(handler).exempt:
        if not hasattr(request, "idempotency"):
            request.idempotency = without_key()  # type: ignore[attr-defined]
        if request.method not in SAFE_METHODS and terms.carries_key(request):
            if handler is None:
                note(request, HeaderStatus.REFUSED)
            else:
                leave_unguarded(request, EXEMPT)
                await areport_unguarded(request)
        return stamp(request, await run())
    if terms.fixed is not None or terms.carries_key(request):
        await sync_to_async(keep)(request)
    guard = _AsyncGuardedHandler(view, terms, handler)

    @functools.wraps(handler)
    async def guarded(*args: Any, **kwargs: Any) -> Any:
        return await guard.enter(*args, **kwargs)

    of_instance = name in vars(view)  # a ViewSet's
    setattr(view, name, guarded)
    try:
        response = await aended(lambda: guard.call, run, functools.partial(_respond, view))
    except DispatchFinished as finished:
        return finished.args[0]
    finally:
        delattr(view, name)  # the guard refers to the view
        # The response is not rendered yet, and renderers read it from the view.
        if of_instance and guard.call is None:
            setattr(view, name, handler)
    return response if guard.call is not None else await guard.leave(request, response)


class _AsyncGuardedHandler:
    """Replaces one handler, for one request."""

    def __init__(self, view: Any, terms: ViewTerms, handler: Callable[..., Any]) -> None:
        self._view = view
        self._terms = terms
        self._handler = handler
        self.call: Call | None = None
        #: What the project's own exception handler responds to.
        self.problem: Problem | None = None
        #: Has the view called it? Before that, it may refuse the request.
        self.reached = False

    async def enter(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """Open the guard and call the handler."""
        self.reached = True
        try:
            await self._open(request)
        except Problem as problem:
            if problems.has_own_handler(self._view):
                note_problem(request._request, problem)
                self.problem = problem
                raise IdempotencyException(problem, request._request) from problem
            raise DispatchFinished(await aproblem_response(problem, request._request)) from problem
        try:
            handler = (
                self._handler
                if iscoroutinefunction(self._handler)
                else sync_to_async(self._handler)
            )
            return await handler(request, *args, **kwargs)
        except Exception as error:
            if (
                self.call is not None
                and (left := await self.call.course.aleft_by(error)) is not None
            ):
                return await _respond(self._view, left)
            raise

    async def leave(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Finish the response to a request without a call: it has no key, or was refused."""
        if self.problem is not None:
            headed(response, self.problem, request)
        judge(request, response, self._terms, reached=self.reached)
        await areport_unguarded(request)
        await aconclude(request, response)
        return stamp(request, response)

    async def _open(self, request: Any) -> None:
        terms = self._terms
        # A project's own may query a database, which an event loop refuses.
        policy = terms.fixed
        if policy is None:
            policy = await in_database_thread(terms.policy_of, self._view)
        call = await _admit(request, policy, strict=terms.strict)
        if call is None:
            await areport_unguarded(request._request)
        elif (replay := await call.aopen()) is not None:
            raise DispatchFinished(replay)
        else:
            self.call = call


async def arun_inside(
    request: Any, policy: Policy, function: Callable[[], Awaitable[Any]]
) -> HttpResponseBase:
    """Run an async function below `@api_view` under guard; its view handles exceptions and finishes
    the response.
    """
    view = request.parser_context["view"]

    async def complete() -> HttpResponseBase:
        try:
            response = await function()
        except Exception as error:  # noqa: BLE001 - DRF raises what it does not handle
            if call is not None and (left := await call.course.aleft_by(error)) is not None:
                return await _respond(view, left)
            response = view.handle_exception(error)
        done: HttpResponseBase = view.finalize_response(
            request, response, *view.args, **view.kwargs
        )
        await sync_to_async(render)(done)
        return done

    try:
        call = await _admit(request, policy, strict=True)
        replay = None if call is None else await call.aopen()
    except Problem as problem:
        return await _respond(view, problem)
    if replay is not None:
        return replay
    if call is None:
        await areport_unguarded(request._request)
        response = await function()
        await aconclude(request._request, response)
        return response  # type: ignore[no-any-return]
    return await aended(lambda: call, complete, functools.partial(_respond, view))


async def _admit(request: Any, policy: Policy, *, strict: bool) -> Call | None:
    view = request.parser_context["view"]
    http, finish = request._request, functools.partial(finished, view)
    # Its user is known: initial() has evaluated it, in a thread.
    facts = {
        "source": request,
        "user": request.user,
        "non_atomic": non_atomic_aliases_of(http),
        "finish": finish,
    }
    call = await aadmit(http, policy, by="rest_framework", strict=strict, **facts)
    if call is not None:
        name = f"{type(view).__module__}.{type(view).__qualname__}"
        require_lease(
            call,
            name,
            fix='Type idempotency = Policy(guarantee="lease") in the class. Nothing has run.',
        )
    return call


async def _respond(view: Any, problem: Problem) -> HttpResponseBase:
    """Return the response to a problem: from the project's exception handler, or a problem
    document.
    """
    if not problems.has_own_handler(view):
        return await aproblem_response(problem, view.request._request)
    response = handled(view, problem)
    await sync_to_async(render)(response)
    return response
