"""Which requests the middleware lets pass, and why. Those that ask for a guard and get none are reported."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from .. import conf
from ..contrib.graphql.hook import library_view
from ..core.policy import SAFE_METHODS, Policy
from ..errors import ConfigurationError
from ..http import counting
from ..http.handle import without_key
from ..http.markers import guards_itself, is_exempt, rest_class, view_class
from ..http.ninja_views import is_ninja, operation_of
from ..http.plan import asking, plan_of
from ..http.unguarded import EXEMPT, INSIDE, METHOD, RESOLVERS, Reason, leave_unguarded
from ..instrumentation.meters import meters
from ..instrumentation.outcomes import UNKEYED

#: Every field follows the settings.
POLICY = Policy()


def passes(request: HttpRequest, callback: Any) -> bool:
    """Does the request pass, because there is nothing to guard, or a guard closer to the view?"""
    if request.method in SAFE_METHODS:
        return True
    if is_keyless(request, callback):
        return True
    plan, method = plan_of(POLICY), request.method or ""
    if method not in plan.methods and plan.profile.unsupported_status is None:
        return _left(request, METHOD)
    if is_exempt(callback, method):
        return _left(request, EXEMPT)
    return guards_itself(callback, method) or _is_left(request, callback, in_body=plan.in_body)


def is_keyless(request: HttpRequest, callback: Any) -> bool:
    """Is there no key, and is none required? Counted here, unless the view has a guard that counts it."""
    if (plan := asking(POLICY, request)) is not None and (plan.required or not plan.in_body):
        return False
    if not hasattr(request, "idempotency"):
        request.idempotency = without_key()  # type: ignore[attr-defined]
    method = request.method or ""
    if meters.active and not is_exempt(callback, method) and not guards_itself(callback, method):
        by = "middleware" if rest_class(callback) is None else "rest_framework"  # which the mixin would guard
        counting.begin(request, POLICY, by)
        counting.count(request, UNKEYED)
    return True


def _is_left(request: HttpRequest, callback: Any, *, in_body: bool) -> bool:
    """Is a view without a guard of its own exempt, or of a kind that only its own guard can protect?"""
    exemption = next((each for each in plan_of(POLICY).exemptions if each.covers(request, callback)), None)
    if exemption is not None:
        return _left(request, EXEMPT, f'"EXEMPT" has {exemption.text!r}')
    if in_body:
        return _reads_no_body(callback)
    if is_ninja(callback):
        return _stands_outside(request, callback)
    return library_view(view_class(callback)) is not None and _resolves_later(request, callback)


def _reads_no_body(callback: Any) -> bool:
    """Skip a view that may not expect a key in its body: to look for one costs each request that has none."""
    if conf.get("REQUIRED") is True:
        name = getattr(view_class(callback) or callback, "__qualname__", "the view")
        raise ConfigurationError(
            f'The middleware looks for no key in a body, and "REQUIRED" is set with a "PROFILE" that has it there. Put '
            f"@idempotent() on {name}, or @idempotency_exempt."
        )
    return True


def _stands_outside(request: HttpRequest, callback: Any) -> bool:
    """Skip a ninja operation: access to its replays is checked inside it."""
    if conf.get("REQUIRED") is True:
        operation = operation_of(callback, request.method or "")
        name = getattr(getattr(operation, "view_func", None), "__qualname__", "it")
        raise ConfigurationError(
            f'The middleware cannot guard django-ninja operations, and "REQUIRED" is set. Put @idempotent() '
            f"on {name}, directly below the decorator that makes it an operation, or @idempotency_exempt."
        )
    return _left(request, INSIDE)


def _resolves_later(request: HttpRequest, callback: Any) -> bool:
    """Skip a GraphQL view: its resolvers check access, and a replay would run none."""
    if conf.get("REQUIRED") is True:
        raise ConfigurationError(
            f'The middleware cannot guard {view_class(callback).__name__}, a GraphQL view, and "REQUIRED" is set. Put '
            "@idempotent(authorize_replay=…) on its class, or @idempotency_exempt."
        )
    return _left(request, RESOLVERS)


def _left(request: HttpRequest, reason: Reason, sentence: str = "") -> bool:
    if plan_of(POLICY).carries_key(request.META):
        leave_unguarded(request, reason, sentence)
    return True
