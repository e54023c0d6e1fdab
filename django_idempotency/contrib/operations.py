"""One request to a guarded operation of a framework.

The guard opens where the framework calls the function, and closes around the response. So it comes
after the framework's authentication, throttling and validation, and includes everything that turns
a result into a response: renderers, response schemas, exception handlers.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager
from typing import Any

from django.db import connections
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ..core.policy import SAFE_METHODS, Policy, Resolved
from ..errors import ConfigurationError, OperationUnknown, Problem, TransactionLost
from ..http.admission import Keyed, auser_of, call_of, key_to_guard
from ..http.atomic_requests import (
    ALL_ALIASES,
    NONE_OPENED,
    AllAliases,
    atomic_requests,
    excluded_aliases,
    leave_atomic_requests,
    non_atomic_aliases,
    non_atomic_aliases_of,
)
from ..http.call import Call
from ..http.exchange import call_on, exchange_of, noted_of, stamp
from ..http.plan import plan_of
from ..http.problems import aproblem_response, problem_response
from ..http.responses import render
from ..http.run import aconclude, aended, conclude, require_lease
from ..http.unguarded import areport_unguarded, note_unreached, report_unguarded
from ..http.views import route_of
from ..stores.lending import in_database_thread

#: Errors in the function that the guard answers: derive() without a store, a query after the
#: transaction was lost.
_OURS = (OperationUnknown, TransactionLost)


class OperationFinished(BaseException):
    """Carries a finished response out of the framework, past exception handlers and renderers."""

    def __init__(self, response: HttpResponseBase) -> None:
        super().__init__()
        self.response = response


class Stopped(BaseException):
    """Carries a problem of the function out of the framework, so that none of its exception
    handlers turns it into a 500.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        self.problem = problem


class OperationCall:
    """One request to a guarded operation. Each framework has a subclass."""

    #: What the figures call the entry point.
    by = ""

    call: Call | None = None
    #: Has the framework called the function? Before that, it may refuse the request.
    _reached = False

    def __init__(self, request: HttpRequest, policy: Policy, *, decorated: bool = False) -> None:
        self.request = request
        self.policy = policy
        #: Does a decorator of the project wrap the operation?
        self._decorated = decorated
        self._transactions = transactions_around(request)
        self._response: HttpResponseBase | None = None

    # ------------------------------------------------------------------------- around the framework

    def run(self, operation: Callable[[], HttpResponseBase]) -> HttpResponseBase:
        """Run an operation, with the checks before it."""
        response = self._run(operation)
        if self._decorated and self.call is not None:
            self._transactions.begin()
        return response

    def _run(self, operation: Callable[[], HttpResponseBase]) -> HttpResponseBase:
        exchange_of(self.request).entry = self
        try:
            with ExitStack() as ending:
                ending.push(self._end_transactions)
                self._response = operation()
                if self.call is not None:
                    render(self._response)
        except OperationFinished as finished:  # writes of the checks are kept
            return finished.response
        except BaseException as error:
            if self.call is not None:
                committed = self._response if self._transactions.opened.committed else None
                met = error.problem if isinstance(error, Stopped) else error
                return self._respond(self.call.fail(met, committed=lambda: committed))
            raise
        finally:
            exchange_of(self.request).entry = None
        if self.call is None:
            self._judge(self._response)
            report_unguarded(self.request)
            if not self._transactions.opened.blocks:
                conclude(self.request, self._response)
            return stamp(self.request, self._response)
        try:
            return self.call.settle(self._response)
        except Problem as problem:
            return self._respond(problem)

    def _end_transactions(self, *raised: Any) -> None:
        if self.call is not None:
            self._transactions.end(*raised)

    async def arun(self, operation: Callable[[], Awaitable[HttpResponseBase]]) -> HttpResponseBase:
        """See run(). Django refuses ATOMIC_REQUESTS for async views."""
        exchange_of(self.request).entry = self

        async def work() -> HttpResponseBase:
            try:
                return await operation()
            except Stopped as stopped:
                problem = stopped.problem
            raise problem

        try:
            response = await aended(lambda: self.call, work, self._arespond)
        except OperationFinished as finished:
            return finished.response
        finally:
            exchange_of(self.request).entry = None
        if self.call is not None:
            return response
        self._judge(response)
        await areport_unguarded(self.request)
        await aconclude(self.request, response)
        return stamp(self.request, response)

    def _judge(self, response: HttpResponseBase) -> None:
        """Note the status of a keyed request that was responded to before its function was
        called.
        """
        request = self.request
        if self._reached or request.method in SAFE_METHODS:
            return
        if plan_of(self.policy).carries_key(request.META) and call_on(request) is None:
            note_unreached(request, response)

    # -------------------------------------------------------------------------- around the function

    def enter(self, function: Callable[[], Any]) -> Any:
        """Open the guard, if the request carries a key, and call the function."""
        self._reached = True
        try:
            if (keyed := key_to_guard(self.request, self.policy, by=self.by)) is not None:
                self._open(keyed)
        except Problem as problem:
            raise OperationFinished(self._respond(problem)) from problem
        if self.call is None:
            report_unguarded(self.request)
        try:
            return function()
        except _OURS as problem:
            raise (problem if self.call is None else Stopped(problem)) from problem
        except Exception as error:
            if self.call is not None and (left := self.call.course.left_by(error)) is not None:
                raise Stopped(left) from error
            raise

    def _open(self, keyed: Keyed) -> None:
        user = getattr(self.request, "user", None)
        if (call := self._call(keyed, user)) is None:
            return
        refuse_transaction(self.request)
        if (response := call.open(self._transactions.opened)) is not None:
            raise OperationFinished(response)
        self.call = call

    async def aenter(self, function: Callable[[], Awaitable[Any]]) -> Any:
        """See enter()."""
        self._reached = True
        try:
            if (keyed := key_to_guard(self.request, self.policy, by=self.by)) is not None:
                await self._aopen(keyed)
        except Problem as problem:
            raise OperationFinished(await self._arespond(problem)) from problem
        if self.call is None:
            await areport_unguarded(self.request)
        try:
            return await function()
        except _OURS as problem:
            raise (problem if self.call is None else Stopped(problem)) from problem
        except Exception as error:
            if (
                self.call is not None
                and (left := await self.call.course.aleft_by(error)) is not None
            ):
                raise Stopped(left) from error
            raise

    async def _aopen(self, keyed: Keyed) -> None:
        user = await auser_of(self.request, self.policy)
        call = await in_database_thread(self._call, keyed, user, keep=keyed.claims_in_database)
        if call is None:
            return
        require_lease(call, "This operation")
        if (response := await call.aopen()) is not None:
            raise OperationFinished(response)
        self.call = call

    def _call(self, keyed: Keyed, user: Any) -> Call | None:
        request, user = self.request, self.owner_of(user, keyed.plan.terms)
        return call_of(
            request, keyed, user=user, source=request, non_atomic=non_atomic_aliases_of(request)
        )

    def _respond(self, problem: Problem) -> HttpResponseBase:
        """Return the response to a problem: from the framework, or a problem document."""
        handled = self.handled(problem)
        return problem_response(problem, self.request) if handled is None else handled

    async def _arespond(self, problem: Problem) -> HttpResponseBase:
        """See _respond()."""
        handled = self.handled(problem)
        return await aproblem_response(problem, self.request) if handled is None else handled

    # ------------------------------------------------------------------------ what a framework says

    def owner_of(self, user: Any, terms: Resolved) -> Any:
        """Return whose a key is, as the framework has authenticated the request; `user` is the
        request's own.
        """
        return user

    def handled(self, problem: Problem) -> HttpResponseBase | None:
        """Return what the framework responds to a problem; `None`: a problem document."""
        return None


class Transactions:
    """The transactions of ATOMIC_REQUESTS around a guarded operation, opened as by Django, outside
    the project's decorators.
    """

    def __init__(self, non_atomic: AbstractSet[str] = ALL_ALIASES) -> None:
        self._non_atomic = non_atomic
        self._stack = ExitStack()
        self.opened = NONE_OPENED

    @contextmanager
    def around(self, request: HttpRequest, policy: Policy) -> Iterator[None]:
        """Open them for as long as a view runs."""
        exchange = exchange_of(request)
        exchange.transactions = self
        try:
            with self._stack:
                self.begin(noted=plan_of(policy).may_have_key(request.META))
                yield
        finally:
            exchange.transactions = None

    def begin(self, *, noted: bool = False) -> None:
        """Open them; again after the guard has closed, for what decorators do with its response."""
        self.opened = self._stack.enter_context(atomic_requests(self._non_atomic, noted=noted))

    def end(self, *raised: Any) -> None:
        """End them before the view does, except one that a guard has taken over."""
        self._stack.__exit__(*raised)


def transactions_around(request: HttpRequest) -> Transactions:
    """Return the open ones; none in a view that does not leave ATOMIC_REQUESTS."""
    exchange = noted_of(request)
    found: Transactions | None = None if exchange is None else exchange.transactions
    return Transactions() if found is None else found


def refuse_transaction(request: HttpRequest) -> None:
    """Refuse to claim inside the transaction of ATOMIC_REQUESTS, which our view of the path
    leaves.
    """
    callback = getattr(request.resolver_match, "func", None)
    left = excluded_aliases(callback)
    if not isinstance(left, AllAliases) and any(
        settings["ATOMIC_REQUESTS"] and alias not in left
        for alias, settings in connections.settings.items()
    ):
        raise ConfigurationError(
            "This operation is inside the transaction of ATOMIC_REQUESTS. Use "
            "functools.wraps() in every decorator "
            "around the views of the API."
        )


def leaving(view: Callable[..., Any]) -> Callable[..., Any]:
    """Let the view of guarded operations leave ATOMIC_REQUESTS, and open the same transactions
    itself.
    """

    @functools.wraps(view)
    def leaving_view(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        policy = route_of(leaving_view, request.method or "").policy
        non_atomic = non_atomic_aliases(leaving_view)
        with (
            atomic_requests(non_atomic)
            if policy is None
            else Transactions(non_atomic).around(request, policy)
        ):
            response = view(request, *args, **kwargs)
        conclude(request, response)
        return response

    return leave_atomic_requests(leaving_view)
