"""The guard of a DRF view: where DRF calls the handler, behind authentication, permissions and throttles.

A request runs in the transactions that ATOMIC_REQUESTS asks for, from before the view exists until its response is
rendered, with a key and without. If it turns out to be guarded, the guard takes over the one of its record: what a
permission has locked stays locked, and what authentication has written is rolled back with the work.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Any, cast

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from .. import conf
from ..contrib.observe.observing import conclude
from ..contrib.steps.endings import left_by
from ..core.conclusions import SettledState
from ..core.policy import SAFE_METHODS, Policy
from ..errors import ConfigurationError, OperationUnknown, Problem
from ..http.admission import key_to_guard, key_with_owner
from ..http.atomic_requests import ALL_ALIASES, atomic_requests
from ..http.bodies import keep
from ..http.exchange import Exchange
from ..http.handle import WITHOUT_KEY
from ..http.kinds import kind_of
from ..http.markers import EXEMPT
from ..http.problems import problem_response
from ..http.responses import render
from ..http.status import HeaderStatus, note, note_problem, stamp
from ..http.terms import resolve_policy
from ..http.unguarded import EXEMPT as IS_EXEMPT
from ..http.unguarded import leave_unguarded, report_unguarded
from . import problems
from .entry import ViewEntry, ViewTerms, finished, headed, judge
from .inside import Inside, depths, is_inside
from .problems import DispatchFinished, IdempotencyException

Run = Callable[[], HttpResponseBase]

#: On a request: its entry, while its view runs.
_ENTRY = "_idempotency_entry"


def enter(request: HttpRequest, terms: ViewTerms, run: Run, *, non_atomic: AbstractSet[str]) -> HttpResponseBase:
    """Run a view as Django would under ATOMIC_REQUESTS, and settle the exchange if its guard has opened one."""
    entry, response, keyed = ViewEntry(non_atomic), None, terms.may_have_key(request)
    setattr(request, _ENTRY, entry)
    if not hasattr(request, "idempotency"):
        request.idempotency = WITHOUT_KEY  # type: ignore[attr-defined]
    try:
        with atomic_requests(non_atomic, noted=keyed) as entry.opened:
            entry.depths = depths() if keyed else {}
            response = run()
            if entry.exchange is not None and not entry.ended:
                render(response)
    except BaseException as error:
        if entry.exchange is None:
            raise
        if entry.ended:
            if entry.exchange.operation.left_as is SettledState.COMPLETED:  # and its COMMIT is the project's
                note(request, HeaderStatus.UNKNOWN)
            raise
        committed = functools.partial(_committed, entry, response)
        return entry.respond_to(entry.exchange.fail(error, committed=committed))
    finally:
        if getattr(request, _ENTRY, None) is entry:
            delattr(request, _ENTRY)
    if entry.exchange is None or entry.ended:
        conclude(request, response)
        return response
    try:
        return entry.exchange.settle(response)
    except Problem as problem:
        return entry.respond_to(problem)


def _committed(entry: ViewEntry, response: HttpResponseBase | None) -> HttpResponseBase | None:
    return response if entry.opened.committed else None


def dispatch(view: Any, request: HttpRequest, terms: ViewTerms, run: Run) -> HttpResponseBase:
    """Guard the handler of an unsafe method, if the request has a key. `run` is the dispatch of the view's class."""
    kind = kind_of(type(view)) if hasattr(view, "async_dispatch") else None
    if kind is not None and (begun := kind.dispatch(view, request, terms, run)) is not None:
        return cast("HttpResponseBase", begun)  # a coroutine, as adrf returns one
    entry = getattr(request, _ENTRY, None)
    if entry is None or entry.view is not None:  # not by as_view(), or the second view of this request
        again = functools.partial(dispatch, view, request, terms, run)
        return enter(request, terms, again, non_atomic=ALL_ALIASES)
    entry.view = view
    name = (request.method or "").lower()
    handler = getattr(view, name, None) if name in view.http_method_names else None
    if handler is None or request.method in SAFE_METHODS or hasattr(handler, EXEMPT):
        if request.method not in SAFE_METHODS and terms.carries_key(request):
            _leave(request, exempt=handler is not None)
        return stamp(request, run())
    if iscoroutinefunction(handler):
        _refuse_async(view, request, terms)
    if terms.may_read_body(request):
        keep(request)
    guard = _GuardedHandler(entry, terms, handler)
    try:
        response = _with_guard(view, name, guard, run)
    except DispatchFinished as finished:
        return finished.response
    if entry.exchange is not None:
        return response
    if inspect.iscoroutine(response):
        _refuse_async(view, request, terms, response)
    else:
        judge(request, response, terms, reached=guard.reached)
        report_unguarded(request)
    return stamp(request, response)


def _with_guard(view: Any, name: str, guard: _GuardedHandler, run: Run) -> HttpResponseBase:
    """Put the guard in the handler's place while DRF's own dispatch runs."""
    of_instance = name in vars(view)  # a ViewSet's
    setattr(view, name, functools.wraps(guard.handler)(guard))
    try:
        response = run()
    finally:
        delattr(view, name)  # the guard leads back to the view
        if guard.inside is not None:
            guard.inside.leave()
        if of_instance:  # the response is not rendered yet, and renderers read it from the view
            setattr(view, name, guard.handler)
    return response if guard.problem is None else headed(response, guard.problem, view.request._request)


def asynchronous(cls: type[Any]) -> str:
    """Return the error text for a class with async handlers."""
    return (
        f"{cls.__name__} has async handlers, which REST framework does not await: the guard would close before they have "
        'run. Take the APIView of adrf and type idempotency = Policy(guarantee="lease"), or make the handlers sync.'
    )


def _refuse_async(view: Any, request: HttpRequest, terms: ViewTerms, begun: Any = None) -> None:
    """Refuse a view that is still to be awaited when the guard closes, unless the request needs no guard."""
    if terms.may_have_key(request) or conf.field(terms.fixed or Policy(), "required") is True:
        if begun is not None:
            begun.close()
        raise ConfigurationError(asynchronous(type(view)))


def _leave(request: HttpRequest, *, exempt: bool) -> None:
    """Report why a keyed request is not guarded: its handler is exempt, or missing."""
    if exempt:
        leave_unguarded(request, IS_EXEMPT)
        report_unguarded(request)
    else:
        note(request, HeaderStatus.REFUSED)


class _GuardedHandler:
    """Replaces one handler, for one request."""

    def __init__(self, entry: ViewEntry, terms: ViewTerms, handler: Any) -> None:
        self._entry = entry
        self._terms = terms
        self.handler = handler
        #: Has the view called it? Before that, DRF may refuse the request.
        self.reached = False
        #: The problem that went to the project's own exception handler.
        self.problem: Problem | None = None
        #: Ends the exchange, inside a transaction of the project's around the view's dispatch.
        self.inside: Inside | None = None

    def __call__(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        self.reached = True
        try:
            self._open(request)
        except Problem as problem:
            if not problems.has_own_handler(self._entry.view):
                raise DispatchFinished(problem_response(problem, request._request)) from problem
            note_problem(request._request, problem)
            self.problem = problem
            raise IdempotencyException(problem, request._request) from problem
        call = functools.partial(self._call, request, *args, **kwargs)
        return call() if self.inside is None else self.inside.call(call)

    def _call(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return self.handler(request, *args, **kwargs)
        except OperationUnknown as problem:  # derive() without a store
            return self._respond(problem, request)
        except Exception as error:
            exchange = self._entry.exchange
            if exchange is not None and (left := left_by(exchange.handle, error)) is not None:
                return self._respond(left, request)
            raise

    def _respond(self, problem: Problem, request: Any) -> Any:
        """Return the response to a problem of the work. The project's own exception handler makes it, if there is one."""
        if not problems.has_own_handler(self._entry.view):
            return problem_response(problem, request._request)
        note_problem(request._request, problem)
        self.problem = problem
        raise IdempotencyException(problem, request._request) from problem

    def _open(self, request: Any) -> None:
        http, entry = request._request, self._entry
        policy = self._terms.policy_of(entry.view)
        if self._terms.strict:
            key = key_to_guard(http, policy, by="rest_framework")
        else:
            key = key_with_owner(http, policy, user=request.user, by="rest_framework")
        if key is None:
            report_unguarded(http)
            return
        facts: dict[str, Any] = {"user": request.user, "source": request, "strict": self._terms.strict}
        facts["finish"] = functools.partial(finished, entry.view)
        exchange = Exchange.of(http, resolve_policy(policy), key=key, non_atomic=entry.non_atomic, **facts)
        if exchange is None:
            report_unguarded(http)
            return
        inside = is_inside(exchange, entry.depths)
        if (replay := exchange.open(None if inside else entry.opened)) is not None:
            raise DispatchFinished(replay)
        entry.exchange = exchange
        if inside and not exchange.degraded:
            self.inside = Inside(entry, exchange)
