"""The guard of a DRF view: where DRF calls the handler, behind authentication, permissions and
throttles.

`Dispatch` makes the calls of the bracket (`engine.bracket`) from DRF's own hooks:

    dispatch ─ permissions ─ open() ─ handler ─ finalize_response ─ its end ─ finished() ─ COMMIT
                                              └ an exception leaves dispatch ─ fail()

Where the view's own dispatch has opened a transaction, the call ends with finalize_response.

Under ATOMIC_REQUESTS all of that is in the transaction that Django has begun around the view, and
the guard joins it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from asgiref.sync import iscoroutinefunction
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ..conf import field as field_of
from ..conf import require_installed
from ..core.policy import SAFE_METHODS, Policy
from ..core.records import Guarantee
from ..core.statuses import HeaderStatus
from ..engine.bracket import finished as ended
from ..errors import ConfigurationError, OperationUnknown, Problem
from ..http.admission import admit, asking, compile_expressions
from ..http.atomic_requests import leave_atomic_requests
from ..http.bodies import keep
from ..http.call import Call
from ..http.exchange import call_on, note, stamp, without_key
from ..http.kinds import EXEMPT, kind_of
from ..http.markers import MARK, UNMARKED, names_used
from ..http.plan import ANY_POLICY, may_refuse, plan_of
from ..http.problems import headers, note_problem, problem_response
from ..http.responses import render
from ..http.run import conclude
from ..http.unguarded import leave_unguarded, note_unreached, report_unguarded
from ..instrumentation.meters import meters
from . import problems
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

        A lease cannot join the transaction of ATOMIC_REQUESTS, so its view is excluded.
        """
        view = super().as_view(*args, **kwargs)
        terms = view_terms_of(cls, kwargs)
        return leave_atomic_requests(view) if terms.leases else view

    def get_idempotency_policy(self) -> Policy:
        """Return the policy of this request; `self.action`, `self.request` and `self.kwargs` are
        set.
        """
        return self.idempotency

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Guard the handler of an unsafe method, if the request carries a key."""
        terms = view_terms_of(type(self), vars(self))
        run = functools.partial(super().dispatch, request, *args, **kwargs)
        return dispatch(self, request, terms, run)


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

    @property
    def leases(self) -> bool:
        """Is every request of the view under a lease, as far as that is known?"""
        return self.fixed is not None and field_of(self.fixed, "guarantee") == Guarantee.LEASE

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


def response_to(view: Any, problem: Problem) -> HttpResponseBase:
    """Return the response to a problem: from the project's exception handler, or a problem
    document.
    """
    if not problems.has_own_handler(view):
        return problem_response(problem, view.request._request)
    response = handled(view, problem)
    render(response)
    return response


def _respond(view: Any, problem: Problem, _request: HttpRequest) -> HttpResponseBase:
    return response_to(view, problem)


def headed(response: HttpResponseBase, problem: Problem, request: HttpRequest) -> HttpResponseBase:
    """Return a response with the headers of a problem, unless it has its own."""
    for name, value in headers(problem, request).items():
        response.headers.setdefault(name, value)
    return response


def dispatch(view: Any, request: HttpRequest, terms: ViewTerms, run: Run) -> HttpResponseBase:
    """Guard the handler of an unsafe method, if the request has a key.

    `run` is the dispatch of the view's class.
    """
    if is_keyless(request, terms):
        return run()
    if hasattr(view, "async_dispatch") and view.view_is_async:
        begun = kind_of(type(view)).dispatch(view, request, terms, run)
        if begun is not None:
            return cast("HttpResponseBase", begun)  # a coroutine, as adrf returns one
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
    return Dispatch(view, terms, name, handler).run(request, run)


class Dispatch:
    """One request on its way through DRF's dispatch, with hooks in place of three methods of its
    view.
    """

    #: The call that guards the request.
    call: Call | None = None
    #: Has the view called its handler? Before that, DRF may refuse the request.
    reached = False
    #: The response to send as it is: a replay, or a problem document.
    answer: HttpResponseBase | None = None
    #: Is the call open? What the view does next ends it.
    ends = False
    #: Has it ended, or was it answered without its work?
    is_over = False
    #: Has the view's own dispatch opened a transaction that the guard has joined? Then the call
    #: ends inside of that.
    is_inner = False

    def __init__(self, view: Any, terms: ViewTerms, name: str, handler: Callable[..., Any]) -> None:
        self.view = view
        self.terms = terms
        self.handler = handler
        self.handle_exception = view.handle_exception
        self.finalize_response = view.finalize_response
        self.name = name
        #: The attributes of the view itself, such as a ViewSet's handlers. A handler that looks at
        #: them sees none of ours.
        self.own = vars(view)
        self.before = dict(self.own)
        #: How many transactions were open on each database before.
        self.depths = {
            each.alias: len(each.atomic_blocks) for each in connections.all(initialized_only=True)
        }

    def run(self, request: HttpRequest, run: Run) -> HttpResponseBase:
        """Run DRF's dispatch, and end the call that it has opened."""
        try:
            response = self._run(run)
        except BaseException:
            self._restore()  # once more: an interrupt may have cut it
            if self.call is not None:
                self.call.close()
            raise
        if self.call is not None:
            if not self.is_over:  # DRF has made a response of an exception of open()
                self.call.close()
            return response
        if inspect.iscoroutine(response):
            _refuse_async(self.view, request, self.terms, response)
        elif self.answer is None:
            if not self.reached and self.terms.carries_key(request) and call_on(request) is None:
                note_unreached(request, response)
            report_unguarded(request)
            conclude(request, response)
        return stamp(request, response)

    def _run(self, run: Run) -> HttpResponseBase:
        handle = functools.partial(self._handle)
        self.own[self.name] = functools.update_wrapper(handle, self.handler)
        try:
            response = run()
        except BaseException as error:
            if self.answer is not None and isinstance(error, Exception):
                return self.answer
            if not self.ends:
                raise
            return self._failed(error)
        finally:
            self._restore()
        if self.answer is not None:
            return self.answer
        if self.ends:
            return self._ended(response)
        return response

    # ---------------------------------------------------------------------------------- the hooks

    def _restore(self) -> None:
        """Give the view its own attributes back."""
        for name in (self.name, "handle_exception", "finalize_response"):
            if name in self.before:
                self.own[name] = self.before[name]
            else:
                self.own.pop(name, None)

    def _handle(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """Open the guard and call the handler. The other hooks are there once it has ended."""
        self._restore()
        try:
            if not self._may_run(request):
                return self.answer
            return self.handler(request, *args, **kwargs)
        except Exception as error:
            if self.call is None or not self.ends:
                raise
            left = self.call.course.left_by(error)
            if left is None and isinstance(error, OperationUnknown):  # derive() without a store
                self.call.roll_back_request()
                left = error
            if left is None:
                raise
            return response_to(self.view, left)
        except BaseException as error:
            if not self.ends:
                raise
            return self._failed(error)
        finally:
            self.own["handle_exception"] = self._handle_exception
            if self.answer is not None or self.is_inner:
                self.own["finalize_response"] = self._finalize_response

    def _may_run(self, request: Any) -> bool:
        """Open the guard, if the request has a key. `False`: there is an answer already."""
        self.reached = True
        try:
            call = admit(
                request._request,
                self.terms.fixed or self.terms.policy_of(self.view),
                user=request.user,
                source=request,
                by="rest_framework",
                strict=self.terms.strict,
                finish=functools.partial(finished, self.view),
                respond=functools.partial(_respond, self.view),
            )
        except Problem as problem:
            self.answer = response_to(self.view, problem)
            return False
        if call is None:
            report_unguarded(request._request)
            return True
        self.call = call
        using = call.plan.store.using
        if using is not None:
            self.is_inner = len(connections[using].atomic_blocks) > self.depths.get(using, 0)
        answered = call.open()
        if answered is not None:
            self.is_over = True
            self.answer = answered.value
            return False
        self.ends = True
        return True

    def _handle_exception(self, error: Exception) -> Any:
        """Let DRF make a response of what the handler has raised."""
        try:
            return self.handle_exception(error)
        except BaseException as raised:
            if not self.ends:
                raise
            self.answer = self._failed(raised)
            self.own["finalize_response"] = self._finalize_response
            return self.answer

    def _finalize_response(self, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Keep DRF from finishing an answer. Inside a transaction of the view's own dispatch, end
        the call with its response.
        """
        if self.answer is not None:
            return self.answer
        if not self.ends:
            return cast("HttpResponseBase", self.finalize_response(*args, **kwargs))
        try:
            response = self.finalize_response(*args, **kwargs)
        except BaseException as error:  # noqa: BLE001 - fail() raises it again
            return self._failed(error)
        return self._ended(response)

    def _ended(self, response: HttpResponseBase) -> HttpResponseBase:
        self.ends = False
        self.is_over = True
        assert self.call is not None, "it has been opened"
        return ended(self.call, response)

    def _failed(self, error: BaseException) -> HttpResponseBase:
        self.ends = False
        self.is_over = True
        assert self.call is not None, "it has been opened"
        return self.call.fail(error)


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
