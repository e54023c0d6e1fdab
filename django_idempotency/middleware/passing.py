"""Which requests the middleware lets pass, and why. Those that ask for a guard and get none are reported."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from .. import conf
from ..core.policy import SAFE_METHODS, Policy
from ..errors import ConfigurationError
from ..http import counting
from ..http.exemptions import exempted_by
from ..http.facts import facts_of
from ..http.handle import WITHOUT_KEY
from ..http.markers import view_class
from ..http.unguarded import EXEMPT, METHOD, Reason, leave_unguarded
from ..http.views import Route, route_of
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
    facts = facts_of(request)
    if not facts.is_guarded_method(POLICY) and facts.profile.unsupported_status is None:
        return _left(request, METHOD)
    route = route_of(callback, facts.method)
    if route.exempt:
        return _left(request, EXEMPT)
    return route.guards_itself or _is_left(request, callback, route, in_body=facts.profile.carrier == "body")


def is_keyless(request: HttpRequest, callback: Any) -> bool:
    """Is there no key, and is none required? Counted here, unless the view has a guard that counts it."""
    if (facts := facts_of(request)).may_ask and facts.asks_for_guard(POLICY):
        return False
    if not hasattr(request, "idempotency"):
        request.idempotency = WITHOUT_KEY  # type: ignore[attr-defined]
    if meters.active and not (route := route_of(callback, request.method or "")).exempt and not route.guards_itself:
        by = "middleware" if route.rest is None else "rest_framework"  # which the mixin would guard
        counting.begin(request, POLICY, by)
        counting.count(request, UNKEYED)
    return True


def may_refuse(request: HttpRequest) -> bool:
    """Is there a key, or is one required? A request that is only warned about needs no guard inside its view."""
    return facts_of(request).may_have_key(POLICY) or conf.get("REQUIRED") is True


def _is_left(request: HttpRequest, callback: Any, route: Route, *, in_body: bool) -> bool:
    """Is a view without a guard of its own exempt, or of a kind that only its own guard can protect?"""
    if (exemption := exempted_by(request, callback)) is not None:
        return _left(request, EXEMPT, f'"EXEMPT" has {exemption.text!r}')
    if in_body:
        return _reads_no_body(callback)
    if (kind := route.kind) is None or kind.left is None:
        return False
    if conf.get("REQUIRED") is True:
        raise ConfigurationError(kind.refusal(callback, request.method or ""))
    return _left(request, kind.left)


def _reads_no_body(callback: Any) -> bool:
    """Skip a view that may not expect a key in its body: to look for one costs each request that has none."""
    if conf.get("REQUIRED") is True:
        name = getattr(view_class(callback) or callback, "__qualname__", "the view")
        raise ConfigurationError(
            f'The middleware looks for no key in a body, and "REQUIRED" is set with a "PROFILE" that has it there. Put '
            f"@idempotent() on {name}, or @idempotency_exempt."
        )
    return True


def _left(request: HttpRequest, reason: Reason, sentence: str = "") -> bool:
    if facts_of(request).carries_key():
        leave_unguarded(request, reason, sentence)
    return True
