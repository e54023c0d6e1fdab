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
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from asgiref.sync import iscoroutinefunction
from django.db import connections, transaction
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ..core.conclusions import SettledState
from ..core.policy import SAFE_METHODS, Policy
from ..errors import ConfigurationError, OperationUnknown, Problem
from ..http.admission import admit
from ..http.atomic_requests import ALL_ALIASES, NONE_OPENED, atomic_requests
from ..http.bodies import keep
from ..http.call import Call
from ..http.exchange import HeaderStatus, call_on, exchange_of, note, stamp
from ..http.kinds import kind_of
from ..http.markers import MARK, UNMARKED
from ..http.plan import ANY_POLICY, may_refuse, plan_of
from ..http.problems import headers, note_problem, problem_response
from ..http.responses import render
from ..http.run import conclude
from ..http.unguarded import EXEMPT, leave_unguarded, note_unreached, report_unguarded
from . import problems
from .problems import IdempotencyException

Run = Callable[[], HttpResponseBase]


class DispatchFinished(BaseException):
    """Leaves DRF's dispatch with a finished response, past its exception handler and finalize_response."""

    def __init__(self, response: HttpResponseBase) -> None:
        super().__init__()
        self.response = response


@dataclass(frozen=True, slots=True)
class ViewTerms:
    """Where the policy of a view comes from."""

    #: The policy, if it does not depend on the request.
    fixed: Policy | None
    #: Is a key without a principal refused? The middleware lets such a request through.
    strict: bool = True

    def policy_of(self, view: Any) -> Policy:
        """Return the policy of a view that is about to call its handler."""
        return self.fixed or checked_policy(view, view.get_idempotency_policy())

    def may_read_body(self, request: HttpRequest) -> bool:
        """May the body of a request that asks for a guard be compared, as far as is known before the view decides?"""
        return self.fixed is not None or plan_of().carries_key(request.META)

    def carries_key(self, request: HttpRequest) -> bool:
        """Has a request sent a key, as far as is known before the view decides?"""
        return plan_of(ANY_POLICY if self.fixed is None else self.fixed).carries_key(request.META)


def checked_policy(view: Any, policy: Any) -> Policy:
    """Return a view's policy. Raises `ConfigurationError` for what is not one."""
    if isinstance(policy, Policy):
        return policy
    raise ConfigurationError(
        f"The idempotency policy of {type(view).__name__} is a value of type {type(policy).__name__}. "
        "Type idempotency = Policy(required=True, …) in the class."
    )


def is_inside(call: Call, before: dict[str, int]) -> bool:
    """Has a transaction been opened on the database of an atomic guard since the view was entered?"""
    alias = call.atomic_alias
    return alias is not None and len(connections[alias].atomic_blocks) > before.get(alias, 0)


class ViewEntry:
    """One request on its way through a view."""

    def __init__(self, non_atomic: AbstractSet[str]) -> None:
        #: The databases without a transaction of ours, and the transactions of the others.
        self.non_atomic = non_atomic
        self.opened = NONE_OPENED
        self.call: Call | None = None
        self.view: Any = None
        #: How many transactions were open on each database before the view's dispatch.
        self.depths: dict[str, int] = {}
        #: Has the call ended already, inside a transaction around that dispatch?
        self.ended = False

    def respond_to(self, problem: Problem) -> HttpResponseBase:
        """Return the response to a problem: from the project's exception handler, or a problem document."""
        view = self.view
        if not problems.has_own_handler(view):
            return problem_response(problem, view.request._request)
        note_problem(view.request._request, problem)
        response = view.handle_exception(IdempotencyException(problem, view.request._request))
        response = view.finalize_response(view.request, response, *view.args, **view.kwargs)
        render(headed(response, problem, view.request._request))
        return cast("HttpResponseBase", response)


def finished(view: Any, response: Any) -> HttpResponseBase:
    """Return a response as the view's own `dispatch()` would finish it: one of REST framework gets its renderer."""
    return cast("HttpResponseBase", view.finalize_response(view.request, response, *view.args, **view.kwargs))


def judge(request: HttpRequest, response: HttpResponseBase, terms: ViewTerms, *, reached: bool) -> None:
    """Note the status of a keyed request whose handler was never called."""
    if not reached and terms.carries_key(request) and call_on(request) is None:
        note_unreached(request, response)


def headed(response: HttpResponseBase, problem: Problem, request: HttpRequest) -> HttpResponseBase:
    for name, value in headers(problem, request).items():
        response.headers.setdefault(name, value)
    return response


def enter(request: HttpRequest, run: Run, *, non_atomic: AbstractSet[str]) -> HttpResponseBase:
    """Run a view as Django would under ATOMIC_REQUESTS, and settle the call if its guard has opened one."""
    entry, response, exchange = ViewEntry(non_atomic), None, exchange_of(request)
    outer, exchange.entry = exchange.entry, entry
    try:
        with atomic_requests(non_atomic) as entry.opened:
            entry.depths = {each.alias: len(each.atomic_blocks) for each in connections.all(initialized_only=True)}
            response = run()
            if entry.call is not None and not entry.ended:
                render(response)
    except BaseException as error:
        if entry.call is None:
            raise
        if entry.ended:
            if entry.call.operation.left_as is SettledState.COMPLETED:  # and its COMMIT is the project's
                note(request, HeaderStatus.UNKNOWN)
            raise
        return entry.respond_to(entry.call.fail(error, committed=lambda: response if entry.opened.committed else None))
    finally:
        exchange.entry = outer
    if entry.call is None or entry.ended:
        if exchange.concluding is not None:
            conclude(request, response)
        return response
    try:
        return entry.call.settle(response)
    except Problem as problem:
        return entry.respond_to(problem)


def dispatch(view: Any, request: HttpRequest, terms: ViewTerms, run: Run) -> HttpResponseBase:
    """Guard the handler of an unsafe method, if the request has a key. `run` is the dispatch of the view's class."""
    kind = kind_of(type(view)) if hasattr(view, "async_dispatch") else None
    if kind is not None and (begun := kind.dispatch(view, request, terms, run)) is not None:
        return cast("HttpResponseBase", begun)  # a coroutine, as adrf returns one
    exchange = getattr(getattr(request, "idempotency", None), "_exchange", None)
    entry = None if exchange is None else exchange.entry
    if not isinstance(entry, ViewEntry) or entry.view is not None:  # not by as_view(), or the request's second view
        again = functools.partial(dispatch, view, request, terms, run)
        return enter(request, again, non_atomic=ALL_ALIASES)
    entry.view = view
    return _dispatch(view, request, terms, run, entry)


def _dispatch(view: Any, request: HttpRequest, terms: ViewTerms, run: Run, entry: ViewEntry) -> HttpResponseBase:
    name = (request.method or "").lower()
    handler = getattr(view, name, None) if name in view.http_method_names else None
    if handler is None or request.method in SAFE_METHODS or getattr(handler, MARK, UNMARKED).exempt:
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
    if entry.call is not None:
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
    if terms.fixed is None or may_refuse(terms.fixed, request):
        if begun is not None:
            begun.close()
        raise ConfigurationError(asynchronous(type(view)))


def _leave(request: HttpRequest, *, exempt: bool) -> None:
    """Report why a keyed request is not guarded: its handler is exempt, or missing."""
    if exempt:
        leave_unguarded(request, EXEMPT)
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
        #: Ends the call, inside a transaction of the project's around the view's dispatch.
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
            guarding = self._entry.call
            if guarding is not None and (left := guarding.course.left_by(error)) is not None:
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
        call = admit(
            http,
            self._terms.policy_of(entry.view),
            user=request.user,
            source=request,
            by="rest_framework",
            strict=self._terms.strict,
            non_atomic=entry.non_atomic,
            finish=functools.partial(finished, entry.view),
        )
        if call is None:
            report_unguarded(http)
            return
        inside = is_inside(call, entry.depths)
        if (replay := call.open(NONE_OPENED if inside else entry.opened)) is not None:
            raise DispatchFinished(replay)
        entry.call = call
        if inside and not call.degraded:
            self.inside = Inside(entry, call)


# ------------------------------------------------------------------------ a transaction around the view's own dispatch
# A transaction that the project has opened around `dispatch()`: the guard joins it, and ends before it does.
#
#     enter ─ BEGIN ─ dispatch ─ permissions ─┬ claim ─ handler ─ finalize_response ─ store response ┬─ COMMIT ─ enter
#                                             └──────────────────── savepoint ───────────────────────┘
#
# The response is rendered there. Changes that the project's `dispatch()` makes to it afterwards are not stored.

#: Where DRF's dispatch ends: by a response, or by an exception.
_ENDS = ("finalize_response", "handle_exception")


class Inside:
    """Ends the guard of one request where DRF's own dispatch ends, as enter() does elsewhere."""

    def __init__(self, entry: ViewEntry, call: Call) -> None:
        self._entry = entry
        self._call = call
        self._view = entry.view
        #: The view's own attributes that ours replace, while they do.
        self._replaced: dict[str, Any] | None = None

    def call(self, handler: Callable[[], Any]) -> Any:
        """Call the handler. Our methods replace the view's only after it, since the handler may call those itself."""
        try:
            response = handler()
        except Exception:
            self._stand_in()
            raise
        except BaseException as error:  # noqa: BLE001 - it is raised again
            self._fail(error)
        self._stand_in()
        return response

    def _stand_in(self) -> None:
        attributes = vars(self._view)
        self._replaced = {name: attributes[name] for name in _ENDS if name in attributes}
        attributes.update(finalize_response=self._finalize, handle_exception=self._handle)

    def leave(self) -> None:
        """Give the view its methods back."""
        replaced, self._replaced = self._replaced, None
        if replaced is not None:
            for name in _ENDS:
                vars(self._view).pop(name, None)
            vars(self._view).update(replaced)

    def _handle(self, error: Exception) -> Any:
        self.leave()
        try:
            response = self._view.handle_exception(error)
        except BaseException as raised:  # noqa: BLE001 - it is raised again
            self._fail(raised)
        self._stand_in()
        return response

    def _finalize(self, *args: Any, **kwargs: Any) -> HttpResponseBase:
        self.leave()
        try:
            response: HttpResponseBase = self._view.finalize_response(*args, **kwargs)
            render(response)
        except BaseException as error:  # noqa: BLE001 - it is raised again
            self._fail(error)
        return self._settle(response)

    def _settle(self, response: HttpResponseBase) -> HttpResponseBase:
        operation = self._call.operation
        needs_rollback, self._entry.ended = operation.needs_rollback(), True
        try:
            response = self._call.settle(response)
        except Problem as problem:
            raise DispatchFinished(self._entry.respond_to(problem)) from problem
        alias = self._call.atomic_alias
        assert alias is not None, "see is_inside()"
        if needs_rollback and operation.left_as is not SettledState.COMPLETED and connections[alias].in_atomic_block:
            transaction.set_rollback(True, using=alias)  # all of it, as DRF has requested
        return response

    def _fail(self, error: BaseException) -> NoReturn:
        self._entry.ended = True
        problem = self._call.fail(error)
        raise DispatchFinished(self._entry.respond_to(problem)) from error
