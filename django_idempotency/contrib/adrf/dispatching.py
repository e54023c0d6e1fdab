"""Async REST framework views, as in adrf: the mixin and the decorator below `@api_view`, under a
lease.

The guard opens when the handler is called, after authentication, permissions and throttles, and
closes around the rendered response. No transaction is involved.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from ... import Policy
from ...api.requests import EXEMPT
from ...core.policy import SAFE_METHODS
from ...core.statuses import HeaderStatus
from ...errors import Problem
from ...http.admission import Keyed, call_of
from ...http.bodies import keep
from ...http.call import Call
from ...http.exchange import call_on, note, stamp, without_key
from ...http.markers import mark_of
from ...http.plan import ANY_POLICY
from ...http.run import arun, require_lease
from ...http.unguarded import areport_unguarded, leave_unguarded
from ...rest_framework.guarding import ViewTerms, finished, response_to
from ...stores.lending import in_database_thread
from ..operations import OperationCall

Run = Callable[[], Awaitable[HttpResponseBase]]


class ViewCall(OperationCall):
    """One request to a view of adrf."""

    by = "rest_framework"

    def __init__(self, view: Any, request: HttpRequest, terms: ViewTerms) -> None:
        super().__init__(request, terms.fixed or ANY_POLICY)
        self._view = view
        self._terms = terms
        self._source: Any = None

    async def handle(
        self, handler: Callable[..., Any], request: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Open the guard and call the handler."""
        self._source = request
        if self._terms.fixed is None:
            # The project's own method may query a database, which an event loop refuses.
            self.policy = await in_database_thread(self._terms.policy_of, self._view)
        if not iscoroutinefunction(handler):
            handler = sync_to_async(handler)
        response = await self.aenter(functools.partial(handler, request, *args, **kwargs))
        # In place of an answer, which is sent as it is.
        return response if self.answer is None else HttpResponse()

    def require_lease(self, call: Call) -> None:
        _require_lease(self._view, call)

    def _called(self, keyed: Keyed, user: Any) -> Call | None:
        # Its user is known: initial() has evaluated it, in a thread.
        return call_of(
            self.request,
            keyed,
            user=self._source.user,
            source=self._source,
            strict=self._terms.strict,
            finish=functools.partial(finished, self._view),
            respond=self.respond,
        )

    def respond(self, problem: Problem, request: HttpRequest) -> HttpResponseBase:
        """Return the response to a problem: from the project's exception handler, or a problem
        document.
        """
        return response_to(self._view, problem)


async def adispatch(
    view: Any, request: HttpRequest, terms: ViewTerms, run: Run
) -> HttpResponseBase:
    """Guard the handler of an unsafe method, if the request carries a key. `run` is the view's own
    dispatch.
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
    call = ViewCall(view, request, terms)

    @functools.wraps(handler)
    async def guarded(*args: Any, **kwargs: Any) -> Any:
        return await call.handle(handler, *args, **kwargs)

    own = vars(view)
    before = own.get(name)  # a ViewSet's
    own[name] = guarded
    try:
        return await call.arun(run)
    finally:
        if before is None:
            own.pop(name, None)
        else:
            own[name] = before


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
        except Exception as error:
            call = call_on(request._request)
            if call is not None and await in_database_thread(call.course.left_by, error):
                raise  # the call responds
            response = view.handle_exception(error)
        return finished(view, response)

    return await arun(
        request._request,
        policy,
        complete,
        by="rest_framework",
        source=request,
        user=request.user,
        finish=functools.partial(finished, view),
        respond=lambda problem, _: response_to(view, problem),
        require=functools.partial(_require_lease, view),
    )


def _require_lease(view: Any, call: Call) -> None:
    name = f"{type(view).__module__}.{type(view).__qualname__}"
    fix = 'Type idempotency = Policy(guarantee="lease") in the class. Nothing has run.'
    require_lease(call, name, fix=fix)
