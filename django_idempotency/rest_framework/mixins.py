"""The mixin: guards after DRF's authentication, permissions and throttles, around everything else.

The URLconf's callback of a guarded view opens the transactions of ATOMIC_REQUESTS in place of Django.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ..conf import require_installed
from ..core.policy import SAFE_METHODS, Policy
from ..http.atomic_requests import (
    ALL_ALIASES,
    NON_ATOMIC,
    AllAliases,
    atomic_requests,
    exclude_aliases,
    non_atomic_aliases,
)
from ..http.handle import without_key
from ..http.identity import compile_expressions
from ..http.plan import asking
from ..instrumentation.meters import meters
from .guarding import ViewTerms, dispatch, enter

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
        terms = view_terms_of(type(self), vars(self))
        # Its callback has noted a request that is not keyless.
        if getattr(getattr(request, "idempotency", None), "_exchange", None) is None and is_keyless(request, terms):
            return super().dispatch(request, *args, **kwargs)
        return dispatch(self, request, terms, functools.partial(super().dispatch, request, *args, **kwargs))


def view_terms_of(cls: type[Any], given: Mapping[str, Any]) -> ViewTerms:
    """Return the terms of a class that has the mixin's attributes. `given` may have one of its own, as an `@action` has."""
    decides = cls.get_idempotency_policy is not IdempotentViewMixin.get_idempotency_policy
    policy = given.get("idempotency", cls.idempotency)
    fixed = None if decides or not isinstance(policy, Policy) else policy
    return ViewTerms(fixed)


def guarded_view(view: Callable[..., Any], terms: ViewTerms) -> Any:
    """Return the callback of a view that guards itself. Django itself refuses ATOMIC_REQUESTS for an async one."""
    return view if iscoroutinefunction(view) else GuardedView(view, terms)


class GuardedView:
    """A view, as `as_view()` returns it, with the attributes that the project has set on it.

    That it opens the transactions itself is kept in a slot, so no decorator copies it: around a decorator Django opens
    them, as without us, and nothing is left to open here.
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
        # What Django has called may be a proxy of this, such as a tracer's. By our set it has left the transactions to us.
        called, ours = getattr(getattr(request, "resolver_match", None), "func", None), getattr(self, NON_ATOMIC)
        non_atomic = set(ours) if getattr(called, NON_ATOMIC, ()) is ours else ALL_ALIASES
        if is_keyless(request, self._terms):
            with atomic_requests(non_atomic, noted=False):
                return self._view(request, *args, **kwargs)
        run = functools.partial(self._view, request, *args, **kwargs)
        return enter(request, run, non_atomic=non_atomic)


def is_keyless(request: HttpRequest, terms: ViewTerms) -> bool:
    """Is it known, before the view decides, that a request has no key and needs none? Then nothing happens to it.

    A keyless request that is counted, or looked at, comes as far as the handler.
    """
    if request.method not in SAFE_METHODS and (terms.fixed is None or asking(terms.fixed, request) is not None):
        return False
    if not hasattr(request, "idempotency"):
        request.idempotency = without_key()  # type: ignore[attr-defined]
    return not meters.active and request.idempotency._exchange is None  # type: ignore[attr-defined]  # noqa: SLF001
