"""Guarded endpoints of django-modern-rest. Imported once there is one: it needs that package.

`endpoint_cls` of the controller becomes a class whose endpoints close a guard around their
response. The method opens it.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.core.exceptions import ImproperlyConfigured
from django.http.response import HttpResponseBase
from django.utils.decorators import classonlymethod
from dmr import Controller
from dmr.endpoint import Endpoint

from ... import Policy
from ...core.dialects import PROBLEM_JSON
from ...core.policy import async_contradiction
from ...core.records import MISSING
from ...decorators.views import leases
from ...errors import Problem
from ...http.atomic_requests import leave_atomic_requests
from ...http.exchange import spoken_to
from ...http.markers import UNSAFE_HANDLERS, mark, mark_of, next_method
from ...http.problems import headers, note_problem
from ...http.views import call_around
from ..operations import OperationCall


class EndpointCall(OperationCall):
    """One request to a guarded endpoint. A key belongs to the user of the request, whom its
    authentication has set.
    """

    by = "modern_rest"
    #: What the method has returned.
    _returned: Any = MISSING

    def __init__(self, controller: Controller[Any], endpoint: Endpoint, policy: Policy) -> None:
        super().__init__(controller.request, policy)
        self._controller = controller
        self._endpoint = endpoint

    def enter(self, function: Callable[[], Any]) -> Any:
        """Open the guard, if the request carries a key, and call the method."""
        self._returned = super().enter(function)
        return self._returned

    async def aenter(self, function: Callable[[], Awaitable[Any]]) -> Any:
        """See enter()."""
        self._returned = await super().aenter(function)
        return self._returned

    def judged(self, response: HttpResponseBase) -> HttpResponseBase:
        """Let a response be a failure that is not the method's: what that has returned was refused,
        after the work.
        """
        returned = self._returned
        made = self._endpoint.metadata.modification
        if self.call is not None and returned is not MISSING:
            is_own = isinstance(returned, HttpResponseBase)
            kept = (
                response is returned
                if is_own
                else made is not None and response.status_code == made.status_code
            )
            if not kept and not self.call.degraded:
                self.call.discard()
        return response

    def handled(self, problem: Problem) -> HttpResponseBase | None:
        """Return a problem in the error format of the controller, with our code as its type; or as
        the profile has it.
        """
        profile = spoken_to(self.request).profile
        if profile.error_type != PROBLEM_JSON:
            return None
        note_problem(self.request, problem)
        said = self._controller.format_error(problem.detail, error_type=problem.code)
        status = HTTPStatus(profile.status_of(problem))
        about = headers(problem, self.request)
        return self._controller.to_error(said, status_code=status, headers=about)


class GuardedEndpoint(Endpoint):
    """Mixed into the class of a controller's endpoints. Those of methods without `@idempotent()`
    are as before.
    """

    def __init__(self, func: Callable[..., Any], *, controller_cls: type[Controller[Any]]) -> None:
        super().__init__(func, controller_cls=controller_cls)
        self.policy = mark_of(func).policy
        if self.policy is not None:
            self.func = _closing(self, self.func, self.policy)

    def get_schema(
        self, route_metadata: Any, controller_cls: Any, context: Any, router: Any
    ) -> Any:
        """Return the package's schema of the endpoint, with its key and the responses to it."""
        operation = super().get_schema(route_metadata, controller_cls, context, router)
        if self.policy is None:
            return operation
        from .openapi import describe  # not above: only schemas need it

        return describe(operation, self, self.policy, controller_cls, context)


def _closing(endpoint: Endpoint, run: Callable[..., Any], policy: Policy) -> Any:
    """Return what runs an endpoint, its checks included, and closes the guard around the
    response.
    """

    @functools.wraps(run)
    def guarded(controller: Controller[Any], *args: Any, **kwargs: Any) -> HttpResponseBase:
        call = EndpointCall(controller, endpoint, policy)
        return call.run(lambda: call.judged(run(controller, *args, **kwargs)))

    @functools.wraps(run)
    async def aguarded(controller: Controller[Any], *args: Any, **kwargs: Any) -> HttpResponseBase:
        call = EndpointCall(controller, endpoint, policy)

        async def judged() -> HttpResponseBase:
            return call.judged(await run(controller, *args, **kwargs))

        return await call.arun(judged)

    return aguarded if endpoint.is_async else guarded


def _opening(method: Callable[..., Any], policy: Policy) -> Callable[..., Any]:
    """Return a controller's method that opens the guard when its endpoint calls it."""

    @functools.wraps(method)
    def guarded(self: Controller[Any], *args: Any, **kwargs: Any) -> Any:
        work = functools.partial(method, self, *args, **kwargs)
        call = call_around(self.request, policy)
        return work() if call is None else call.enter(work)

    @functools.wraps(method)
    async def aguarded(self: Controller[Any], *args: Any, **kwargs: Any) -> Any:
        work = functools.partial(method, self, *args, **kwargs)
        call = call_around(self.request, policy)
        return await (work() if call is None else call.aenter(work))

    return aguarded if iscoroutinefunction(method) else guarded


def guard_endpoint(
    owner: type[Controller[Any]], method: Callable[..., Any], policy: Policy
) -> None:
    """Guard the endpoint that a controller's class, which is being made, will have of a method."""
    name = method.__name__
    where = f"{owner.__name__}.{method.__name__}"
    if name not in UNSAFE_HANDLERS:
        raise ImproperlyConfigured(
            f"@idempotent() on {where}: it is not one of the handlers {UNSAFE_HANDLERS}."
        )
    if owner.streaming:
        raise ImproperlyConfigured(
            f"@idempotent() on {where}: its events are made while they are sent, after the "
            "guard has closed. Do the work "
            "in an endpoint of a plain controller, and stream what has become of it from another."
        )
    if iscoroutinefunction(method) and not leases(policy):
        raise ImproperlyConfigured(
            async_contradiction(where, fix='Type @idempotent(guarantee="lease").')
        )
    guarded = _opening(method, policy)
    mark(guarded, policy=policy)
    setattr(owner, name, guarded)
    if issubclass(owner.endpoint_cls, GuardedEndpoint):
        return
    owner.endpoint_cls = type("GuardedEndpoint", (GuardedEndpoint, owner.endpoint_cls), {})
    as_view = next_method(owner, "as_view")

    @functools.wraps(as_view)
    def leaving_view(cls: type[Any], *args: Any, **kwargs: Any) -> Any:
        view = as_view(cls, *args, **kwargs)
        return leave_atomic_requests(view) if leases(policy) else view

    owner.as_view = classonlymethod(leaving_view)  # type: ignore[assignment]
