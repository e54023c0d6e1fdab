"""The guard of a GraphQL view: directly around the library's `dispatch()`, inside what its class
puts before that.
"""

from __future__ import annotations

import functools
import json
import logging
import types
from collections.abc import Callable
from typing import Any, cast

from asgiref.sync import iscoroutinefunction
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.decorators import classonlymethod
from django.views import View

from ... import Policy, conf
from ...api.requests import problem_response, require_bounded
from ...core.concurrency import in_thread
from ...core.policy import ENFORCE, SAFE_METHODS, async_contradiction
from ...decorators.views import leases
from ...errors import Problem
from ...http.admission import asking, is_covered
from ...http.atomic_requests import leave_atomic_requests
from ...http.bodies import receive
from ...http.exchange import call_on, stamp, without_key
from ...http.kinds import Reason
from ...http.markers import MARK, Mark, mark
from ...http.plan import plan_of
from ...http.run import arun, run
from ...http.unguarded import areport_unguarded, leave_unguarded, report_unguarded, watched
from ...stores.lending import in_database_thread
from ..observe.observing import observation_of
from . import operations
from .operations import Execution

READS = Reason("reads", "it is not a GraphQL mutation", logging.INFO)


def guard(cls: type[Any], library: type[Any], policy: Policy) -> type[Any]:
    """Return a subclass of a GraphQL view whose mutations are guarded.

    Raises `ImproperlyConfigured` for a policy without `authorize_replay`, and for an async view
    without a lease.
    """
    if conf.field(policy, "authorize_replay") is None:
        raise ImproperlyConfigured(
            f"@idempotent() on {cls.__name__} needs authorize_replay: a replay runs no "
            "resolver, so it would skip their "
            "access checks. Type authorize_replay=may_replay, a function of request and "
            "outcome that repeats them; or "
            "authorize_replay=lambda request, outcome: True, if there are none."
        )
    is_async = iscoroutinefunction(library.dispatch)
    if is_async and not leases(policy):
        fix = 'Type @idempotent(guarantee="lease", …), or take the sync GraphQLView.'
        raise ImproperlyConfigured(async_contradiction(cls.__name__, fix=fix))
    bases: tuple[type[Any], ...] = (cls,)
    if not issubclass(cls, _GuardedView):
        # This subclass of the library's view comes between that and all other bases in the MRO:
        # their dispatch(), such as LoginRequiredMixin's, runs before the guard.
        mixin = _AsyncGuardedView if is_async else _GuardedView
        bases = (
            (mixin, cls)
            if cls is library
            else (cls, types.new_class(f"Guarded{library.__name__}", (mixin, library)))
        )
    named = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    names = {**named, "idempotency_policy": policy, MARK: Mark(policy=policy)}
    return types.new_class(cls.__name__, bases, exec_body=lambda body: body.update(names))


class _GuardedView(View):
    """Comes directly before the library's view in the MRO. An instance serves one request."""

    idempotency_policy: Policy
    schema: Any = None
    execution_context_class: Any = None
    #: What the library executes of a guarded request.
    _execution: Execution | None = None

    @classonlymethod
    def as_view(cls, **initkwargs: Any) -> Any:  # noqa: N805
        """Return the view. It notices a request that passes its guard by."""
        view = super().as_view(**initkwargs)
        mark(view, policy=cls.idempotency_policy)
        watching = watched(view, cls, cls.idempotency_policy)
        return leave_atomic_requests(watching) if leases(cls.idempotency_policy) else watching

    def execute_graphql_request(self, *args: Any, **kwargs: Any) -> Any:
        """Let graphene execute an operation."""
        self._watch()
        return super().execute_graphql_request(*args, **kwargs)  # type: ignore[misc]

    def execute_single(self, *args: Any, **kwargs: Any) -> Any:
        """Let strawberry execute an operation: its async view awaits what this returns."""
        self._watch()
        return super().execute_single(*args, **kwargs)  # type: ignore[misc]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Guard the request if it may change something and carries a key."""
        policy = self.idempotency_policy
        call = functools.partial(super().dispatch, request, *args, **kwargs)
        if not _is_concerned(request, policy):
            return call()
        try:
            _receive(request, policy)
        except Problem as problem:
            return problem_response(problem, request)
        changes = (
            operations.changes_graphene if self._is_graphene else operations.changes_strawberry
        )
        if changes(self, request):
            self._execution = Execution()
            return run(
                request,
                policy,
                lambda: self._judged(request, call()),
                source=request,
            )
        if plan_of(policy).carries_key(request.META):
            leave_unguarded(request, READS)
            report_unguarded(request)
        return stamp(request, call())

    @property
    def _is_graphene(self) -> bool:
        return hasattr(self, "parse_body")

    def _watch(self) -> None:
        """Let what executes an operation, or the operations of a batch, note that it does."""
        if self._execution is None or self._execution.was_asked:
            return
        if self._is_graphene:
            self.execution_context_class = self._execution.watching(self.execution_context_class)
        elif (schema := self._execution.watching_schema(self.schema)) is not None:
            self.schema = schema

    def _judged(self, request: HttpRequest, response: Any) -> Any:
        """Let what was executed decide whether the response is stored."""
        judge = call_on(request) or observation_of(request)
        if judge is not None and self._execution is not None and self._execution.was_asked:
            judge.weigh(
                response,
                has_begun=self._execution.has_begun,
                reports_failure=_reports_failure(response),
            )
        return response


def _reports_failure(response: Any) -> bool:
    """Does each result in a response have errors, and no data beside them (GraphQL specification,
    section 7.1)?
    """
    try:
        said = json.loads(response.content)
    except (AttributeError, ValueError):
        return False
    results = said if isinstance(said, list) else [said]
    return all(_has_failed(result) for result in results)


def _has_failed(result: Any) -> bool:
    if not isinstance(result, dict) or not result.get("errors"):
        return False
    data = result.get("data")
    return data is None or (
        isinstance(data, dict) and all(value is None for value in data.values())
    )


class _AsyncGuardedView(_GuardedView):
    """The same before strawberry's async view, under a lease."""

    async def dispatch(  # type: ignore[override]
        self, request: HttpRequest, *args: Any, **kwargs: Any
    ) -> HttpResponseBase:
        """See _GuardedView.dispatch()."""
        policy = self.idempotency_policy
        call: Callable[[], Any] = functools.partial(
            super(_GuardedView, self).dispatch, request, *args, **kwargs
        )
        if not _is_concerned(request, policy):
            return cast("HttpResponseBase", await call())
        try:
            _receive(request, policy)
        except Problem as problem:
            return await in_database_thread(problem_response, problem, request)
        if await operations.achanges_strawberry(self, request):
            self._execution = Execution()

            async def respond() -> HttpResponseBase:
                judged = functools.partial(self._judged, request, await call())
                # The project's `keep` may query the ORM, which refuses calls from an event loop.
                asks = callable(conf.field(policy, "keep"))
                return cast(
                    "HttpResponseBase",
                    await in_thread(judged, close=connections.close_all) if asks else judged(),
                )

            return await arun(request, policy, respond)
        if plan_of(policy).carries_key(request.META):
            leave_unguarded(request, READS)
            await areport_unguarded(request)
        return stamp(request, cast("HttpResponseBase", await call()))


def _is_concerned(request: HttpRequest, policy: Policy) -> bool:
    """Does a request have a key that guards it, or may it need one?"""
    if not hasattr(request, "idempotency"):
        request.idempotency = without_key()  # type: ignore[attr-defined]
    if request.method in SAFE_METHODS or is_covered(request):
        return False
    return asking(policy, request) is not None


def _receive(request: HttpRequest, policy: Policy) -> None:
    """Refuse a body that is too long, or cut short: what is left of a mutation may read as a
    query.
    """
    if conf.field(policy, "mode") == ENFORCE:
        require_bounded(request, conf.field(policy, "max_request_body"))
        receive(request)
