"""Which requests are guarded, and under which key: asked by every entry point, before there is a call."""

from __future__ import annotations

from os import environ
from typing import Any, NamedTuple

from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest

from ..core.policy import SAFE_METHODS, WARN, Policy
from ..core.records import prints
from ..errors import ConfigurationError, KeyMissing, KeyUnsupported, Problem
from ..instrumentation.meters import meters
from ..instrumentation.outcomes import UNGUARDED, UNKEYED
from ..runtime import switch
from ..runtime.wings import extended, wing
from . import counting
from .call import Call
from .exchange import Exchange, HeaderStatus, call_on, exchange_of, hand_out, note, noted_of, speak
from .handle import RequestIdempotency, SwitchedOff, without_key
from .identity import UNUSABLE, Key, Where, has_owner, identify
from .keys import user_of
from .markers import view_class
from .plan import Plan, asking
from .unguarded import KEYLESS, METHOD, NOBODY, leave_unguarded


@prints()
class Keyed(NamedTuple):
    """The plan of a request that is to be guarded, and its key."""

    plan: Plan
    key: Key
    exchange: Exchange


def key_to_guard(request: HttpRequest, policy: Policy, *, by: str = "decorator") -> Keyed | None:
    """Return the key to guard a request under, or `None` to let it run; cheap when there is none.

    `by` is the kind of the entry point that asks, for the metrics.

    `Where.PAYLOAD`: the policy selects it, which may read the body and is left to `call_of()`. `None` for a safe
    method, a method outside the policy, a request that an outer guard covers, no key, and while idempotency is off.
    Raises `KeyMissing`, `KeyMalformed`, `KeyExpired`, `KeyAhead` and `KeyUnsupported`, and `ConfigurationError` for a
    policy that contradicts the settings; or notes them if the policy only observes. `ConfigurationError`, too, for a
    guard that the middleware cannot see.
    """
    if not hasattr(request, "idempotency"):
        request.idempotency = without_key()  # type: ignore[attr-defined]
    if request.method in SAFE_METHODS:
        return None
    known = noted_of(request)
    if known is not None and known.call is not None and is_covered(request):
        return None
    if meters.active or (known is not None and known.arrived is not None):
        counting.begin(request, policy, by)
    if (plan := asking(policy, request)) is None:
        if meters.active:
            counting.count(request, UNKEYED)
        return None
    exchange = known or exchange_of(request)
    exchange.plan, exchange.spoken = plan, plan.spoken
    if not (guards := request.method in plan.methods) and not _is_unsupported(request, plan):
        return None
    if (switch.overrides or environ.get(switch.VARIABLE)) and not switch.enabled():
        switch_off(request, plan)
        return None
    return _keyed(request, plan, exchange, guards=guards)


def _is_unsupported(request: HttpRequest, plan: Plan) -> bool:
    """Is a key of a request whose method the policy does not guard an error in its profile? Otherwise it runs unguarded."""
    carries = plan.carries_key(request.META)
    if carries and not plan.profile.unsupported_status:
        leave_unguarded(request, METHOD)
    return carries and plan.profile.unsupported_status is not None


def key_with_owner(request: HttpRequest, policy: Policy, *, user: Any, by: str) -> Keyed | None:
    """See key_to_guard(). A request without a principal, which may run unguarded, does so with an unusable key, too.

    For what guards views that know nothing of keys: the sender may be another service, whose header of that name means
    something else.
    """
    try:
        return key_to_guard(request, policy, by=by)
    except UNUSABLE:
        plan = exchange_of(request).plan
        assert plan is not None, "it has read the key"
        if has_owner(request, user, plan.terms):
            raise
        leave_unguarded(request, NOBODY)
        return None


def call_of(
    request: HttpRequest, keyed: Keyed, *, user: Any, source: Any, strict: bool = True, **facts: Any
) -> Call | None:
    """Return the call of a keyed request, or `None` if it runs unguarded: see `identify()`, also for `source`.

    `None`, too, under a policy that only observes. `facts`: see `Call`.
    """
    plan, key, exchange = keyed
    if plan.observes:
        wing("observe").watch(request, plan, key=key, user=user, source=source, strict=strict)
        return None
    identity = identify(request, plan.terms, key=key, user=user, source=source, strict=strict)
    return None if identity is None else Call(request, plan, identity, exchange, by_middleware=not strict, **facts)


def admit(
    request: HttpRequest, policy: Policy, *, user: Any, source: Any, by: str, strict: bool, **facts: Any
) -> Call | None:
    """Return the call that guards a request, or `None`: see key_to_guard(), key_with_owner() unless `strict`, and call_of()."""
    keyed = key_to_guard(request, policy, by=by) if strict else key_with_owner(request, policy, user=user, by=by)
    return None if keyed is None else call_of(request, keyed, user=user, source=source, strict=strict, **facts)


async def aadmit(request: HttpRequest, policy: Policy, *, by: str, source: Any = None, **facts: Any) -> Call | None:
    """See admit(). Without a `user` among the `facts` it is found as an async view finds it. The body is read in a thread."""
    if (keyed := key_to_guard(request, policy, by=by)) is None:
        return None
    if "user" not in facts:
        facts["user"] = await user_of(request, policy)
    return await sync_to_async(call_of)(request, keyed, source=source or request, **facts)


def switch_off(request: HttpRequest, plan: Plan) -> None:
    """Give the request a `request.idempotency` that stores nothing, and warn once per process."""
    switch.warn_once()
    if plan.carries_key(request.META):
        note(request, HeaderStatus.UNGUARDED)
    if not getattr(request, "idempotency", None):  # another entry point has set it
        hand_out(request, extended(RequestIdempotency)(SwitchedOff(request, plan)))
    counting.count(request, UNGUARDED)


def _keyed(request: HttpRequest, plan: Plan, exchange: Exchange, *, guards: bool) -> Keyed | None:
    try:
        key = _key_of(request, plan, guards=guards)
        if key is not None:
            plan.terms  # noqa: B018 - raises what contradicts the settings
    except (Problem, ConfigurationError, ImproperlyConfigured) as error:
        if not plan.observes:
            raise
        wing("observe").watch(request, None, refusal=error)
        return None
    return None if key is None else Keyed(plan, key, exchange)


def _key_of(request: HttpRequest, plan: Plan, *, guards: bool) -> Key | None:
    if not guards:
        plan.read_key(request.META)
        raise KeyUnsupported
    if (key := plan.key_of(request.META)) is not None:
        if plan.profile.echoes:
            speak(request, plan.profile, plan.sent(request.META))
        return key
    if plan.may_have_key(request.META):
        return Where.PAYLOAD
    if plan.required == WARN:
        leave_unguarded(request, KEYLESS)
        return None
    raise KeyMissing


def is_covered(request: HttpRequest) -> bool:
    """Is it guarded already, so that a guard has nothing to do?

    Raises `ConfigurationError` for a guard inside a view that the middleware guards: a replay would skip what stands between
    the two. That view's response is not kept, even if it handles the error.
    """
    if (outer := call_on(request)) is None or not outer.by_middleware:
        return outer is not None
    outer.discard()  # the view may have worked
    view = getattr(getattr(request, "resolver_match", None), "func", None)
    name = getattr(view_class(view) or view, "__qualname__", "the view")
    raise ConfigurationError(
        f"{name} calls a view with a guard of its own, which IdempotencyMiddleware cannot see: it guards {name} instead, "
        "by its own policy, and a replay would skip what checks access before the inner view. Put "
        f"@idempotency_exempt on {name}; the inner view keeps its guard."
    )
