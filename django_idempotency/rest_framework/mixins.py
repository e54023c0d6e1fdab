"""The mixin: guards after DRF's authentication, permissions and throttles, around everything else."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..conf import require_installed
from ..core.policy import Policy
from ..http.selection import compile_expressions
from .callbacks import guarded_view
from .entry import ViewTerms
from .guarding import dispatch

if TYPE_CHECKING:
    from django.http import HttpRequest
    from django.http.response import HttpResponseBase
    from rest_framework.views import APIView as Base
else:
    Base = object


class IdempotentViewMixin(Base):
    # Makes the unsafe methods of an APIView or ViewSet safe to retry. Put it before them in the bases.
    #
    # The guard opens when DRF calls the handler, so a replay repeats authentication, permissions and throttles, and it
    # closes around the rendered response, so that an exception which DRF turns into a response ends as that response.
    #
    # Not a docstring: schema generators would show it as the description of a view that has none.

    #: The policy of every action without one: `@action(idempotency=Policy(…))`; or override `get_idempotency_policy()`.
    idempotency: Policy = Policy()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Compile the expressions of the class's policy. Raises `ValueError` for an invalid one."""
        require_installed()
        super().__init_subclass__(**kwargs)
        if isinstance(policy := vars(cls).get("idempotency"), Policy):
            compile_expressions(policy)

    @classmethod
    def as_view(cls, *args: Any, **kwargs: Any) -> Any:
        """Return the view. It opens ATOMIC_REQUESTS itself, so that a guard may take a transaction over."""
        return guarded_view(super().as_view(*args, **kwargs), view_terms_of(cls, kwargs))

    def get_idempotency_policy(self) -> Policy:
        """Return the policy of this request; `self.action`, `self.request` and `self.kwargs` are set."""
        return self.idempotency

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Guard the handler of an unsafe method, if the request carries a key."""
        run = functools.partial(super().dispatch, request, *args, **kwargs)
        return dispatch(self, request, view_terms_of(type(self), vars(self)), run)


def view_terms_of(cls: type[Any], given: Mapping[str, Any]) -> ViewTerms:
    """Return the terms of a class that has the mixin's attributes. `given` may have one of its own, as an `@action` has."""
    decides = cls.get_idempotency_policy is not IdempotentViewMixin.get_idempotency_policy
    policy = given.get("idempotency", cls.idempotency)
    fixed = None if decides or not isinstance(policy, Policy) else policy
    return ViewTerms(fixed, asks=True)
