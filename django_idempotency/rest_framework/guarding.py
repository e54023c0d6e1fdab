"""The guard of a DRF view: where DRF calls the handler, behind authentication, permissions and
throttles.

The URLconf's callback of a guarded view opens the transactions of ATOMIC_REQUESTS in place of
Django. A request runs in them from before the view exists until its response is rendered, with a
key and without. If it turns out to be guarded, the guard takes over the one of its record: what a
permission has locked stays locked, and what authentication has written is rolled back with the
work.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from asgiref.sync import iscoroutinefunction
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ..conf import require_installed
from ..core.conclusions import SettledState
from ..core.policy import SAFE_METHODS, Policy
from ..core.statuses import HeaderStatus
from ..errors import ConfigurationError, OperationUnknown, Problem
from ..http.admission import admit, compile_expressions
from ..http.atomic_requests import (
    ALL_ALIASES,
    NON_ATOMIC,
    NONE_OPENED,
    AllAliases,
    OpenedTransactions,
    atomic_requests,
    exclude_aliases,
    non_atomic_aliases,
)
from ..http.bodies import keep
from ..http.call import Call
from ..http.exchange import Exchange, call_on, exchange_of, note, stamp, without_key
from ..http.kinds import kind_of
from ..http.markers import MARK, UNMARKED, names_used
from ..http.plan import ANY_POLICY, asking, may_refuse, plan_of
from ..http.problems import headers, note_problem, problem_response
from ..http.responses import render
from ..http.run import conclude
from ..http.unguarded import EXEMPT, leave_unguarded, note_unreached, report_unguarded
from ..instrumentation.meters import meters
from . import problems
from .inside import DispatchFinished, Inside
from .problems import IdempotencyException

if TYPE_CHECKING:
    from rest_framework.views import APIView as Base
else:
    Base = object

Run = Callable[[], HttpResponseBase]


class IdempotentViewMixin(Base):
    # Makes the unsafe methods of an APIView or ViewSet safe to retry. Put it before them in the
    # bases.
    #
    # The guard opens when DRF calls the handler, so a replay repeats authentication, permissions
    # and throttles, and it closes around the rendered response, so that an exception which DRF
    # turns into a response ends as that response.
    #
    # Not a docstring: schema generators would show it as the description of a view that has none.

    #: The policy of every action without one: `@action(idempotency=Policy(…))`; or override
    #: `get_idempotency_policy()`.
    idempotency: Policy = Policy()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Compile the expressions of the class's policy.

        Raises `ValueError` for an invalid one, and `ImproperlyConfigured` for a class whose
        requests would pass the guard by, or whose policy nobody reads.
        """
        require_installed()
        super().__init_subclass__(**kwargs)
        if isinstance(policy := vars(cls).get("idempotency"), Policy):
            compile_expressions(policy)
        if problem := passes_the_guard_by(cls) or has_an_unread_policy(cls):
            raise ImproperlyConfigured(problem)

    @classmethod
    def as_view(cls, *args: Any, **kwargs: Any) -> Any:
        """Return the view.

        It opens ATOMIC_REQUESTS itself, so that a guard may take a transaction over.
        """
        return guarded_view(super().as_view(*args, **kwargs), view_terms_of(cls, kwargs))

    def get_idempotency_policy(self) -> Policy:
        """Return the policy of this request; `self.action`, `self.request` and `self.kwargs` are
        set.
        """
        return self.idempotency

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Guard the handler of an unsafe method, if the request carries a key."""
        terms = view_terms_of(type(self), vars(self))
        if is_keyless(request, terms):
            return super().dispatch(request, *args, **kwargs)
        return dispatch(
            self, request, terms, functools.partial(super().dispatch, request, *args, **kwargs)
        )


def passes_the_guard_by(cls: type[Any]) -> str:
    """Say which class before the mixin responds without it, and what to type; "" if none does."""
    for base in cls.__mro__[: cls.__mro__.index(IdempotentViewMixin)]:
        for name in ("dispatch", "as_view"):
            own = vars(base).get(name)
            method = getattr(own, "__func__", own)
            if own is None or name in names_used(cls, method):
                continue
            if base is cls or issubclass(base, IdempotentViewMixin):
                return (
                    f"{base.__name__}.{name}() does not call super().{name}(), which "
                    "guards its requests. Call it there, or "
                    f"take IdempotentViewMixin out of the bases of {base.__name__}."
                )
            return (
                f"{cls.__name__} has IdempotentViewMixin after {base.__name__} in its "
                "bases, where it guards nothing: "
                f"{base.__name__}.{name}() does not call super().{name}(). Put the mixin first: "
                f"class {cls.__name__}(IdempotentViewMixin, …)."
            )
    return ""


def has_an_unread_policy(cls: type[Any]) -> str:
    """Say which attribute of a class is a policy that nobody reads, and what to type; "" if each is
    read.

    What `get_idempotency_policy()` and each `@action` read is not known by name.
    """
    if cls.get_idempotency_policy is not IdempotentViewMixin.get_idempotency_policy:
        return ""
    read = {id(cls.idempotency)}
    read |= {
        id(getattr(each, "kwargs", {}).get("idempotency"))
        for each in vars(cls).values()
        if inspect.isfunction(each)
    }
    for name, value in vars(cls).items():
        if isinstance(value, Policy) and id(value) not in read:
            return (
                f"{cls.__name__}.{name} is a Policy that nobody reads, so it guards "
                "nothing. Type idempotency = Policy(…); or, "
                "for a policy that several classes share, name it outside of the class."
            )
    return ""


def view_terms_of(cls: type[Any], given: Mapping[str, Any]) -> ViewTerms:
    """Return the terms of a class that has the mixin's attributes.

    `given` may have one of its own, as an `@action` has.
    """
    decides = cls.get_idempotency_policy is not IdempotentViewMixin.get_idempotency_policy
    policy = given.get("idempotency", cls.idempotency)
    fixed = None if decides or not isinstance(policy, Policy) else policy
    return ViewTerms(fixed)


def guarded_view(view: Callable[..., Any], terms: ViewTerms) -> Any:
    """Return the callback of a view that guards itself.

    Django itself refuses ATOMIC_REQUESTS for an async one.
    """
    return view if iscoroutinefunction(view) else GuardedView(view, terms)


class GuardedView:
    """A view, as `as_view()` returns it, with the attributes that the project has set on it.

    That it opens the transactions itself is kept in a slot, so no decorator copies it: around a
    decorator Django opens them, as without us, and nothing is left to open here.
    """

    __slots__ = ("__dict__", "__weakref__", NON_ATOMIC, "_terms", "_view")

    def __init__(self, view: Callable[..., HttpResponseBase], terms: ViewTerms) -> None:
        functools.update_wrapper(self, view)
        vars(self).pop("__wrapped__")  # nothing wraps it
        self._view = view
        self._terms = terms
        exclude_aliases(self, AllAliases(non_atomic_aliases(view)))

    def __call__(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Run the view."""
        # What Django has called may be a proxy of this, such as a tracer's. By our set it has left
        # the transactions to us.
        called, ours = (
            getattr(getattr(request, "resolver_match", None), "func", None),
            getattr(self, NON_ATOMIC),
        )
        non_atomic = set(ours) if getattr(called, NON_ATOMIC, ()) is ours else ALL_ALIASES
        if is_keyless(request, self._terms):
            with atomic_requests(non_atomic, noted=False):
                return self._view(request, *args, **kwargs)
        run = functools.partial(self._view, request, *args, **kwargs)
        entry = ViewEntry(non_atomic)
        try:
            return enter(request, run, entry)
        except BaseException:
            entry.close()
            raise


def is_keyless(request: HttpRequest, terms: ViewTerms) -> bool:
    """Is it known, before the view decides, that a request has no key and needs none?

    Then nothing happens to it.

    One that is counted, or of which something is noted, comes as far as the handler.
    """
    handle = getattr(request, "idempotency", None)
    if getattr(handle, "_exchange", None) is not None:
        return False
    if request.method not in SAFE_METHODS and (
        terms.fixed is None or asking(terms.fixed, request) is not None
    ):
        return False
    if handle is None:
        request.idempotency = without_key()  # type: ignore[attr-defined]
    return not meters.active


@dataclass(frozen=True, slots=True)
class ViewTerms:
    """Where the policy of a view comes from."""

    #: The policy, if it does not depend on the request.
    fixed: Policy | None
    #: Is a key without a principal refused? The middleware lets such a request through.
    strict: bool = True

    def policy_of(self, view: Any) -> Policy:
        """Return the policy of a view that is about to call its handler.

        Raises `ConfigurationError` for what is not one.
        """
        policy = self.fixed or view.get_idempotency_policy()
        if isinstance(policy, Policy):
            return policy
        raise ConfigurationError(
            f"The idempotency policy of {type(view).__name__} is a value of type "
            f"{type(policy).__name__}. "
            "Type idempotency = Policy(required=True, …) in the class."
        )

    def carries_key(self, request: HttpRequest) -> bool:
        """Has a request sent a key, as far as is known before the view decides?"""
        return plan_of(ANY_POLICY if self.fixed is None else self.fixed).carries_key(request.META)


# ----------------------------------------------------------------------------- the way of a request


@dataclass(slots=True, eq=False)
class ViewEntry:
    """One request on its way through a view."""

    #: The databases without a transaction of ours, and the transactions of the others.
    non_atomic: AbstractSet[str]
    opened: OpenedTransactions = NONE_OPENED
    call: Call | None = None
    view: Any = None
    #: How many transactions were open on each database before the view's dispatch.
    depths: dict[str, int] = field(default_factory=dict)
    #: Has the call ended already, inside a transaction around that dispatch?
    ended: bool = False
    #: The call from before it is opened, and what has replaced the handler of the view.
    begun: Call | None = None
    guard: _GuardedHandler | None = None
    #: What is noted of the request, and the entry that it had before.
    exchange: Exchange | None = None
    outer: Any = None

    def close(self) -> None:
        """Leave nothing behind, wherever an interrupt has cut the request.

        After its end it does nothing.
        """
        try:
            if self.begun is not None:
                self.begun.close()
        finally:
            if self.guard is not None:
                self.guard.leave()
            for block in reversed(self.opened.blocks):
                block.drop()
            if self.exchange is not None and self.exchange.entry is self:
                self.exchange.entry = self.outer

    def respond_to(self, problem: Problem) -> HttpResponseBase:
        """Return the response to a problem: from the project's exception handler, or a problem
        document.
        """
        own = problems.has_own_handler(self.view)
        response = (
            handled(self.view, problem)
            if own
            else problem_response(problem, self.view.request._request)
        )
        render(response)
        return response


def finished(view: Any, response: Any) -> HttpResponseBase:
    """Return a response as the view's own `dispatch()` would finish it: one of REST framework gets
    its renderer.
    """
    return cast(
        "HttpResponseBase",
        view.finalize_response(view.request, response, *view.args, **view.kwargs),
    )


def handled(view: Any, problem: Problem) -> HttpResponseBase:
    """Return what the project's own exception handler responds to a problem.

    It is not rendered yet.
    """
    http = view.request._request
    note_problem(http, problem)
    return headed(
        finished(view, view.handle_exception(IdempotencyException(problem, http))), problem, http
    )


def judge(
    request: HttpRequest, response: HttpResponseBase, terms: ViewTerms, *, reached: bool
) -> None:
    """Note the status of a keyed request whose handler was never called."""
    if not reached and terms.carries_key(request) and call_on(request) is None:
        note_unreached(request, response)


def headed(response: HttpResponseBase, problem: Problem, request: HttpRequest) -> HttpResponseBase:
    """Return a response with the headers of a problem, unless it has its own."""
    for name, value in headers(problem, request).items():
        response.headers.setdefault(name, value)
    return response


def enter(request: HttpRequest, run: Run, entry: ViewEntry) -> HttpResponseBase:
    """Run a view as Django would under ATOMIC_REQUESTS, and settle the call if its guard has opened
    one.

    Who calls this closes the entry where anything leaves it, such as a time limit.
    """
    response = None
    entry.exchange = exchange = exchange_of(request)
    entry.outer = exchange.entry
    exchange.entry = entry
    try:
        with atomic_requests(entry.non_atomic) as entry.opened:
            entry.depths = {
                each.alias: len(each.atomic_blocks)
                for each in connections.all(initialized_only=True)
            }
            response = run()
            if entry.call is not None and not entry.ended:
                render(response)
    except BaseException as error:
        if entry.call is None:
            raise
        if entry.ended:
            # And its COMMIT is the project's.
            if entry.call.operation.left_as is SettledState.COMPLETED:
                note(request, HeaderStatus.UNKNOWN)
            raise
        return entry.respond_to(
            entry.call.fail(error, committed=lambda: response if entry.opened.committed else None)
        )
    finally:
        exchange.entry = entry.outer
    if entry.call is None or entry.ended:
        if exchange.concluding is not None:
            conclude(request, response)
        return response
    try:
        return entry.call.settle(response)
    except Problem as problem:
        return entry.respond_to(problem)


def _enter_anew(request: HttpRequest, run: Run) -> HttpResponseBase:
    """Enter a view whose transactions Django or another entry has opened."""
    entry = ViewEntry(ALL_ALIASES)
    try:
        return enter(request, run, entry)
    except BaseException:
        entry.close()
        raise


def dispatch(view: Any, request: HttpRequest, terms: ViewTerms, run: Run) -> HttpResponseBase:
    """Guard the handler of an unsafe method, if the request has a key.

    `run` is the dispatch of the view's class.
    """
    kind = kind_of(type(view)) if hasattr(view, "async_dispatch") else None
    if kind is not None and (begun := kind.dispatch(view, request, terms, run)) is not None:
        return cast("HttpResponseBase", begun)  # a coroutine, as adrf returns one
    exchange = getattr(getattr(request, "idempotency", None), "_exchange", None)
    entry = None if exchange is None else exchange.entry
    # Not by as_view(), or the request's second view.
    if not isinstance(entry, ViewEntry) or entry.view is not None:
        again = functools.partial(dispatch, view, request, terms, run)
        return _enter_anew(request, again)
    entry.view = view
    name = (request.method or "").lower()
    handler = getattr(view, name, None) if name in view.http_method_names else None
    if handler is None or request.method in SAFE_METHODS or getattr(handler, MARK, UNMARKED).exempt:
        if request.method not in SAFE_METHODS and terms.carries_key(request):
            _leave(request, exempt=handler is not None)
        return stamp(request, run())
    if iscoroutinefunction(handler):
        _refuse_async(view, request, terms)
    # May its body be compared, as far as is known by now?
    if terms.fixed is not None or terms.carries_key(request):
        keep(request)
    guard = entry.guard = _GuardedHandler(entry, terms, handler, view, name, name in vars(view))
    try:
        response = _with_guard(guard, run)
    except DispatchFinished as finished:
        return finished.args[0]
    if entry.call is not None:
        return response
    if inspect.iscoroutine(response):
        _refuse_async(view, request, terms, response)
    else:
        judge(request, response, terms, reached=guard.reached)
        report_unguarded(request)
    return stamp(request, response)


def _with_guard(guard: _GuardedHandler, run: Run) -> HttpResponseBase:
    """Put the guard in the handler's place while DRF's own dispatch runs."""
    view = guard.view
    try:
        setattr(view, guard.name, functools.wraps(guard.handler)(guard))
        response = run()
    except BaseException:
        # The transaction of the project ends next.
        if guard.joins and guard.entry.begun is not None:
            guard.entry.begun.close()
        raise
    finally:  # as guard.leave(), which costs a call
        if guard.inside is not None:
            guard.inside.leave()
        if guard.of_instance:
            setattr(view, guard.name, guard.handler)
        else:
            vars(view).pop(guard.name, None)
    return (
        response
        if guard.problem is None
        else headed(response, guard.problem, view.request._request)
    )


def asynchronous(cls: type[Any]) -> str:
    """Return the error text for a class with async handlers."""
    return (
        f"{cls.__name__} has async handlers, which REST framework does not await: the "
        "guard would close before they have "
        'run. Take the APIView of adrf and type idempotency = Policy(guarantee="lease"), '
        "or make the handlers sync."
    )


def _refuse_async(view: Any, request: HttpRequest, terms: ViewTerms, begun: Any = None) -> None:
    """Refuse a view that is still to be awaited when the guard closes, unless the request needs no
    guard.
    """
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


@dataclass(eq=False)
class _GuardedHandler:
    """Replaces one handler, for one request."""

    entry: ViewEntry
    _terms: ViewTerms
    handler: Any
    #: The view, the name of its handler, and whether the view itself has that, as a ViewSet does,
    #: and not its class.
    view: Any
    name: str
    of_instance: bool
    #: Is the call inside a transaction of the project's around the view's dispatch?
    joins: bool = False
    #: Has the view called it? Before that, DRF may refuse the request.
    reached: bool = False
    #: The problem that went to the project's own exception handler.
    problem: Problem | None = None
    #: Ends the call, inside a transaction of the project's around the view's dispatch.
    inside: Inside | None = None

    def leave(self) -> None:
        """Give the view back what was replaced. May be called any number of times."""
        if self.inside is not None:
            self.inside.leave()
        # The response is not rendered yet, and renderers read it from the view.
        if self.of_instance:
            setattr(self.view, self.name, self.handler)
        else:
            vars(self.view).pop(self.name, None)  # the guard leads back to the view

    def __call__(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        self.reached = True
        try:
            self._open(request)
        except Problem as problem:
            raise DispatchFinished(self._respond(problem, request)) from problem
        call = functools.partial(self._call, request, *args, **kwargs)
        return call() if self.inside is None else self.inside.call(call)

    def _call(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return self.handler(request, *args, **kwargs)
        except OperationUnknown as problem:  # derive() without a store
            return self._respond(problem, request)
        except Exception as error:
            guarding = self.entry.call
            if guarding is not None and (left := guarding.course.left_by(error)) is not None:
                return self._respond(left, request)
            raise

    def _respond(self, problem: Problem, request: Any) -> Any:
        """Return the response to a problem.

        The project's own exception handler makes it, if there is one.
        """
        if not problems.has_own_handler(self.entry.view):
            return problem_response(problem, request._request)
        note_problem(request._request, problem)
        self.problem = problem
        raise IdempotencyException(problem, request._request) from problem

    def _open(self, request: Any) -> None:
        http, entry = request._request, self.entry
        call = admit(
            http,
            self._terms.fixed or self._terms.policy_of(entry.view),
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
        # Has a transaction been opened on the database of an atomic guard since the view was
        # entered?
        alias = call.atomic_alias
        inside = alias is not None and len(connections[alias].atomic_blocks) > entry.depths.get(
            alias, 0
        )
        self.joins = inside
        entry.begun = call
        if (replay := call.open(NONE_OPENED if inside else entry.opened)) is not None:
            raise DispatchFinished(replay)
        entry.call = call
        if inside and not call.degraded:
            self.inside = Inside(entry, call)
