"""One request to a guarded operation of a framework, which calls the bracket from its hooks.

`enter()` is around the function, and opens the call: after the framework's authentication,
throttling and validation. `run()` is around all that turns a result into a response, such as
renderers, response schemas and exception handlers, and ends the call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from .. import Policy
from ..api import Resolved
from ..api.requests import problem_response
from ..core.policy import SAFE_METHODS
from ..engine.bracket import (
    Answered,
    failed_in_thread,
    finished,
    finished_in_thread,
    opened_in_thread,
)
from ..errors import OperationUnknown, Problem, TransactionLost
from ..http.admission import Keyed, auser_of, call_of, key_to_guard
from ..http.call import Call
from ..http.exchange import call_on, exchange_of, stamp
from ..http.plan import plan_of
from ..http.run import aconclude, conclude, require_lease
from ..http.unguarded import areport_unguarded, note_unreached, report_unguarded
from ..stores.lending import in_database_thread

#: Errors in the function that the guard answers: derive() without a store, a query after the
#: transaction was lost.
_OURS = (OperationUnknown, TransactionLost)


class OperationCall:
    """One request to a guarded operation. Each framework has a subclass."""

    #: What the figures call the entry point.
    by = ""

    #: The call that guards the request, once it is open.
    call: Call | None = None
    #: The same, from before it is open.
    _begun: Call | None = None
    #: The response to send, whatever the framework makes of it: a replay, or a refusal.
    answer: HttpResponseBase | None = None
    #: What the function has raised that no exception handler of the framework may answer.
    problem: Problem | None = None
    #: Has the framework called the function? Before that, it may refuse the request.
    _reached = False

    def __init__(self, request: HttpRequest, policy: Policy) -> None:
        self.request = request
        self.policy = policy

    # ------------------------------------------------------------------------- around the framework

    def run(self, operation: Callable[[], HttpResponseBase]) -> HttpResponseBase:
        """Run an operation, with the checks before it."""
        exchange_of(self.request).entry = self
        try:
            return self._run(operation)
        finally:
            self._leave()

    def _run(self, operation: Callable[[], HttpResponseBase]) -> HttpResponseBase:
        try:
            response = operation()
        except BaseException as error:
            if self.call is None:
                raise
            return self.call.fail(self.problem or error)
        if self.answer is not None:
            return self.answer
        if self.call is None:
            self._judge(response)
            report_unguarded(self.request)
            conclude(self.request, response)
            return stamp(self.request, response)
        if self.problem is not None:
            return self.call.fail(self.problem)
        return finished(self.call, response)

    async def arun(self, operation: Callable[[], Awaitable[HttpResponseBase]]) -> HttpResponseBase:
        """See run()."""
        exchange_of(self.request).entry = self
        try:
            return await self._arun(operation)
        finally:
            self._leave()

    async def _arun(self, operation: Callable[[], Awaitable[HttpResponseBase]]) -> HttpResponseBase:
        try:
            response = await operation()
        except GeneratorExit as closed:  # nothing can be awaited any more
            if self.call is None:
                raise
            return self.call.fail(closed)
        except BaseException as error:
            if self.call is None:
                raise
            return await failed_in_thread(self.call, self.problem or error)
        if self.answer is not None:
            return self.answer
        if self.call is None:
            self._judge(response)
            await areport_unguarded(self.request)
            await aconclude(self.request, response)
            return stamp(self.request, response)
        if self.problem is not None:
            return await failed_in_thread(self.call, self.problem)
        return await finished_in_thread(self.call, response)

    def _leave(self) -> None:
        """Leave nothing behind, wherever an interrupt has cut the request."""
        exchange_of(self.request).entry = None
        begun = self._begun
        self.call = None
        self._begun = None
        if begun is not None:
            begun.close()

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
            keyed = key_to_guard(self.request, self.policy, by=self.by)
            user = getattr(self.request, "user", None)
            call = None if keyed is None else self._called(keyed, user)
        except Problem as problem:
            self.answer = self.respond(problem, self.request)
            return self.answer
        if call is None:
            report_unguarded(self.request)
            return function()
        self._begun = call
        if self._is_answered(call, call.open()):
            return self.answer
        try:
            return function()
        except Exception as error:
            self._note(error, call.course.left_by(error))
            raise

    async def aenter(self, function: Callable[[], Awaitable[Any]]) -> Any:
        """See enter()."""
        self._reached = True
        try:
            keyed = key_to_guard(self.request, self.policy, by=self.by)
            call = None
            if keyed is not None:
                user = await auser_of(self.request, self.policy)
                called = partial(self._called, keyed, user)
                call = await in_database_thread(called, keep=keyed.claims_in_database)
        except Problem as problem:
            self.answer = await in_database_thread(self.respond, problem, self.request)
            return self.answer
        if call is None:
            await areport_unguarded(self.request)
            return await function()
        self.require_lease(call)
        self._begun = call
        if self._is_answered(call, await opened_in_thread(call)):
            return self.answer
        try:
            return await function()
        except Exception as error:
            self._note(error, await in_database_thread(call.course.left_by, error))
            raise

    def _is_answered(self, call: Call, answered: Answered[HttpResponseBase] | None) -> bool:
        if answered is None:
            self.call = call
            return False
        self.answer = answered.value
        return True

    def _note(self, error: Exception, left: Problem | None) -> None:
        if left is not None:
            self.problem = left
        elif isinstance(error, _OURS):
            self.problem = error

    def _called(self, keyed: Keyed, user: Any) -> Call | None:
        request = self.request
        user = self.owner_of(user, keyed.plan.terms)
        return call_of(request, keyed, user=user, source=request, respond=self.respond)

    def respond(self, problem: Problem, request: HttpRequest) -> HttpResponseBase:
        """Return the response to a problem: from the framework, or a problem document."""
        handled = self.handled(problem)
        return problem_response(problem, request) if handled is None else handled

    # ------------------------------------------------------------------------ what a framework says

    def require_lease(self, call: Call) -> None:
        """Raise `ConfigurationError` for async work that is not under a lease."""
        require_lease(call, "This operation")

    def owner_of(self, user: Any, terms: Resolved) -> Any:
        """Return whose a key is, as the framework has authenticated the request; `user` is the
        request's own.
        """
        return user

    def handled(self, problem: Problem) -> HttpResponseBase | None:
        """Return what the framework responds to a problem; `None`: a problem document."""
        return None
