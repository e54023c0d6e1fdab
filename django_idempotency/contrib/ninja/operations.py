"""Guarded operations of ninja. Imported once there is one: it needs ninja."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from ninja.operation import Operation, PathView

from ... import Policy
from ...decorators.views import leases
from ...http.atomic_requests import leave_atomic_requests
from ...http.kinds import operation_of
from ...http.markers import MARK, Mark, mark_of
from .calls import OperationCall


class GuardedOperation(Operation):
    """Mixed into the class of an operation, and kept in the copies that ninja makes of it for each
    API.
    """

    idempotency_policy: Policy

    def run(self, request: HttpRequest, **kw: Any) -> HttpResponseBase:
        """Run the operation under guard."""
        call = OperationCall(request, self.api, self.idempotency_policy)
        return call.run(functools.partial(super().run, request, **kw))


class AsyncGuardedOperation(Operation):
    """The same for an async operation."""

    idempotency_policy: Policy

    async def run(self, request: HttpRequest, **kw: Any) -> HttpResponseBase:  # type: ignore[override]
        """See GuardedOperation.run()."""
        operation: Any = functools.partial(super().run, request, **kw)
        return await OperationCall(request, self.api, self.idempotency_policy).arun(operation)


def guard_operation(operation: Operation, policy: Policy) -> None:
    """Guard an operation that ninja has just made."""
    cls = type(operation)
    guard = AsyncGuardedOperation if iscoroutinefunction(cls.run) else GuardedOperation
    members = {
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "idempotency_policy": policy,
    }
    members[MARK] = Mark(policy=policy)
    operation.__class__ = type(cls.__name__, (guard, cls), members)


def _with_view(
    get_view: Callable[[PathView], Callable[..., Any]],
) -> Callable[[PathView], Callable[..., Any]]:
    """Exclude the view of a path whose guarded operations are leases from ATOMIC_REQUESTS.

    Ninja makes one view per path, and offers no hook for it.
    """

    @functools.wraps(get_view)
    def get_guarded_view(self: PathView) -> Callable[..., Any]:
        view = get_view(self)
        policies = [mark_of(operation).policy for operation in self.operations]
        leased = any(policy is not None and leases(policy) for policy in policies)
        return leave_atomic_requests(view) if leased else view

    return get_guarded_view


def _probed(request: HttpRequest) -> None: ...


def _prepare() -> None:
    """Change how ninja makes the view of a path.

    Raises `ImproperlyConfigured` for an unknown version of ninja.
    """
    probe = PathView()
    probe.add_operation("/", ["POST"], _probed)
    if operation_of(probe.get_view(), "POST") is not probe.operations[0]:
        raise ImproperlyConfigured(
            "@idempotent() does not know this version of django-ninja. Install one that it "
            "was tested with: "
            '"django-ninja>=1.7,<1.8".'
        )
    PathView.get_view = _with_view(PathView.get_view)  # type: ignore[method-assign, assignment]


_prepare()
