"""What is known about a view before any request: whether it is exempt, guards itself, and with
which policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest

from ..core.policy import Policy
from ..errors import ConfigurationError
from .access_checks import Before, find_before
from .admission import key_to_guard
from .exchange import noted_of
from .kinds import EXEMPT, LARGEST, ViewKind, asked_once, kind_of, operation_of
from .markers import below_api_view, handler_of, mark_of, rest_class, view_class
from .plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """What is known about a callback of the URLconf and a method."""

    #: Why it is exempt: `@idempotency_exempt` has been put on the view, its class, or its handler,
    #: or it is of a kind that needs no guard; "": it is not.
    exempt: str
    #: Does it guard this method itself, by the mixin or the decorator?
    guards_itself: bool
    #: The policy that `@idempotent()` has put on the view, on its handler, or below that.
    policy: Policy | None
    kind: ViewKind
    #: The class behind it, if that is of REST framework.
    rest: type[Any] | None


@dataclass(slots=True)
class PlannedRoute:
    """A route under the plan of the middleware, for all requests to a callback by a method."""

    plan: Plan
    callback: Any
    method: str
    known: Route
    is_async: bool
    #: What stands before the view, if the middleware guards that from outside.
    before: Before
    #: The view with a guard inside, if it is of REST framework, once it is made.
    inside: Any = None


@asked_once
def route_of(callback: Any, method: str) -> Route:
    """Return what is known about a callback of the URLconf and a method."""
    cls = view_class(callback)
    handler = handler_of(callback, method)
    operation = operation_of(callback, method)
    kind = kind_of(callback)
    marked = (callback, handler, below_api_view(handler), operation)
    policy = next((found for each in marked if (found := mark_of(each).policy) is not None), None)
    itself = policy is not None or hasattr(cls, "get_idempotency_policy")
    exempted = (
        callback,
        cls,
        handler,
        below_api_view(handler),
        getattr(operation, "view_func", None),
    )
    exempt = "@idempotency_exempt" if any(mark_of(each).exempt for each in exempted) else ""
    if kind.left is not None and kind.left.code == EXEMPT.code and not itself:
        exempt = exempt or kind.left.sentence
    return Route(
        exempt=exempt,
        guards_itself=itself,
        policy=policy,
        kind=kind,
        rest=rest_class(callback),
    )


def planned_route(plan: Plan, callback: Any, method: str) -> PlannedRoute:
    """Return what is known about a callback, and keep it with the plan of the middleware."""
    if len(plan.routes) >= LARGEST:
        plan.routes.clear()
    known = route_of(callback, method)
    outside = known.rest is None and not known.guards_itself and not known.exempt
    route = plan.routes[id(callback), method] = PlannedRoute(
        plan,
        callback,
        method,
        known,
        is_async=iscoroutinefunction(callback),
        before=find_before(callback, method) if outside else Before(),
    )
    return route


def unknown_before(callback: Any, method: str) -> str:
    """Return the layer before a view behind which the middleware refuses replays, or "".

    A view of REST framework checks access itself.
    """
    return "" if rest_class(callback) is not None else find_before(callback, method).unknown


def own_policy(callback: Any, method: str) -> Policy | None:
    """Return the policy of a view that guards itself; `None`: it depends on more than the method
    and its action.
    """
    marked = route_of(callback, method).policy
    cls = view_class(callback)
    if not hasattr(cls, "get_idempotency_policy"):
        return marked
    try:
        view = cls(**getattr(callback, "initkwargs", {}))  # @action(idempotency=…) is in them
        view.action = (getattr(callback, "actions", None) or {}).get(method.lower())
        view.request = _Method(method)
        policy = view.get_idempotency_policy()
    except Exception:  # noqa: BLE001 - it has asked for what only a request has
        return None
    return (marked or policy) if isinstance(policy, Policy) else None


class _Method:
    """A request of which only the method is known."""

    def __init__(self, method: str) -> None:
        self.method = method

    def __getattr__(self, name: str) -> Any:
        # Not AttributeError, which getattr(request, name, default) would hide.
        raise LookupError(name)


def call_around(request: HttpRequest, policy: Policy) -> Any:
    """Return the call of the operation that a guarded function runs in; `None` if it is not an
    operation's.

    Raises `ConfigurationError` if it is called inside a package's view, and not by its own
    operation.
    """
    exchange = noted_of(request)
    call = None if exchange is None else exchange.entry
    if getattr(call, "policy", None) is policy:
        return call
    kind = kind_of(getattr(request.resolver_match, "func", None))
    if kind.astray and key_to_guard(request, policy) is not None:
        raise ConfigurationError(kind.astray)
    return None
